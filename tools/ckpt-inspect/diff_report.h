// What `diff` found, as text and as JSON.
#ifndef CKPT_TOOLS_CKPT_INSPECT_DIFF_REPORT_H_
#define CKPT_TOOLS_CKPT_INSPECT_DIFF_REPORT_H_

#include <algorithm>
#include <cstdint>
#include <set>
#include <string>
#include <vector>

#include "converters/verbs/comparison.h"
#include "core/base/status.h"
#include "core/checkpoint/index.h"
#include "tools/ckpt-inspect/object_diff.h"
#include "tools/ckpt-inspect/tensor_diff.h"
#include "tools/cli/streams.h"

namespace ckpt::inspect {

// Everything that was found.
struct Differences {
  const Comparison* comparison = nullptr;
  const CheckpointIndex* index_a = nullptr;
  const CheckpointIndex* index_b = nullptr;
  std::vector<TensorDiff> different;  // the pairs that are not equal
  std::int64_t num_elements = 0;      // read on each side
  ObjectDiff objects;
  std::vector<Problem> problems;

  // Those that are compared, each once, however often it is stored.
  [[nodiscard]] std::int64_t num_tensors() const {
    return std::ranges::count(comparison->pairs, 0U, &TensorPair::copy);
  }
  // What was compared is equal, and nothing is missing that both sides have.
  [[nodiscard]] bool is_equal() const {
    return !has_differences() && unread_entries().empty() && !misses_run();
  }

  [[nodiscard]] bool has_differences() const {
    const bool has_same_settings = !comparison->run || comparison->run->different.empty();
    return !different.empty() || !comparison->a.only.empty() || !comparison->b.only.empty() ||
           !has_same_settings;
  }
  // Keys of the tensors and objects that one side cannot deliver, so that they are not compared.
  [[nodiscard]] std::set<std::string> unread_entries() const {
    std::set<std::string> keys;
    for (const SideRest* const rest : {&comparison->a, &comparison->b}) {
      for (const Problem& problem : rest->unreadable) keys.insert(problem.tensor);
    }
    return keys;
  }
  // Both sides are training runs, and one is not understood, or is damaged and says no settings.
  [[nodiscard]] bool misses_run() const {
    if (!comparison->a.holds_run || !comparison->b.holds_run) return false;
    if (!comparison->run) return true;
    const bool lacks_settings = !comparison->a.no_settings.ok() || !comparison->b.no_settings.ok();
    return lacks_settings && std::ranges::any_of(problems, [](const Problem& problem) {
             return problem.severity == Severity::kError;
           });
  }
};

// One JSON document.
void PrintDifferencesJson(const Differences& findings, cli::Streams& streams);
// For people.
void PrintDifferences(const Differences& findings, cli::Streams& streams);

}  // namespace ckpt::inspect

#endif  // CKPT_TOOLS_CKPT_INSPECT_DIFF_REPORT_H_
