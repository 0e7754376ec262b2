// What `diff` found, as text and as JSON.
#ifndef CKPT_TOOLS_CKPT_INSPECT_DIFF_REPORT_H_
#define CKPT_TOOLS_CKPT_INSPECT_DIFF_REPORT_H_

#include <algorithm>
#include <cstdint>
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
  // What was compared is equal, and what two optimizers keep was compared.
  [[nodiscard]] bool is_equal() const { return !has_differences() && !misses_run(); }

  [[nodiscard]] bool has_differences() const {
    const auto is_clean = [](const SideRest& rest) {
      return rest.only.empty() && rest.unreadable.empty();
    };
    const bool has_same_settings = !comparison->run || comparison->run->different.empty();
    return !different.empty() || !is_clean(comparison->a) || !is_clean(comparison->b) ||
           !has_same_settings;
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
