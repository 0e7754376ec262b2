// How a pickle is read: limits, and what objects become on the way.
#ifndef CKPT_FORMATS_PICKLE_OPTIONS_H_
#define CKPT_FORMATS_PICKLE_OPTIONS_H_

#include <cstdint>
#include <functional>
#include <optional>

#include "formats/pickle/graph.h"
#include "formats/pickle/literal.h"

namespace ckpt::pickle {

// Replaces objects by numbers while the pickle is being read, so that a graph of millions of equal
// small objects never exists. What it replaces, and everything that only the replaced object
// referred to, leaves the graph.
class Reducer {
 public:
  virtual ~Reducer() = default;
  // `callable(*args)` was read. Nothing: keep the node.
  virtual std::optional<Record> OnCall(const Graph& graph, NodeId callable, NodeId args) = 0;
  // `instance` (a kInstance) got its state. Nothing: keep the node.
  virtual std::optional<Record> OnBuilt(const Graph& graph, NodeId instance, NodeId state) = 0;
  // The shortcut of both for an instance that was read in one piece. Must return what OnBuilt
  // would, or nothing: then its parts are read again one by one.
  virtual std::optional<Record> OnLiteral(const Graph& /*graph*/,
                                          const InstanceLiteral& /*instance*/) {
    return std::nullopt;
  }
};

struct PickleOptions {
  // Where in the bytes the pickle begins: some streams hold several in a row.
  std::uint64_t start = 0;
  // Limits of what a small file can make of memory.
  std::uint32_t max_nodes = 1U << 26;
  std::uint32_t max_stack = 1U << 26;
  Reducer* reducer = nullptr;  // not owned
  // torch's legacy form has the class of a module as the persistent id ("module", the class, its
  // file, its source): the id stands for the class.
  bool has_module_ids = false;
  // Called now and then with a position; the bytes before it will not be looked at again in this
  // pass.
  std::function<void(std::uint64_t)> consumed = nullptr;
};

}  // namespace ckpt::pickle

#endif  // CKPT_FORMATS_PICKLE_OPTIONS_H_
