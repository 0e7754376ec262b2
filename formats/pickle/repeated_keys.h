// Finds keys of a pickled dict that are one key to Python.
#ifndef CKPT_FORMATS_PICKLE_REPEATED_KEYS_H_
#define CKPT_FORMATS_PICKLE_REPEATED_KEYS_H_

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "formats/pickle/graph.h"

namespace ckpt::pickle {

// Python keeps one of the values of such a key, and picklers write a key once. A file that has one
// twice is made so that readers disagree.
//
// Compares texts, and numbers by value whatever their type (True, 1 and 1.0 are one key); other
// keys are taken for distinct. Each key is compared once, however many dicts share it.
class RepeatedKeys {
 public:
  // `graph` must outlive this, unchanged.
  explicit RepeatedKeys(const Graph& graph) : graph_(graph), numbers_(graph.size(), 0) {}

  // A key that the kDict `dict` has twice.
  std::optional<NodeId> FindIn(NodeId dict);

 private:
  // Equal for equal keys.
  std::uint32_t NumberOf(NodeId key);

  const Graph& graph_;
  std::vector<std::uint32_t> numbers_;  // by node; 0: not compared yet
  std::unordered_map<std::string_view, std::uint32_t> texts_;
  std::unordered_map<std::string, std::uint32_t> values_;
};

}  // namespace ckpt::pickle

#endif  // CKPT_FORMATS_PICKLE_REPEATED_KEYS_H_
