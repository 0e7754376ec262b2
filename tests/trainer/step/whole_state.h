// WholeState: tensors of a run, put together from the rows that its ranks own.
#ifndef CKPT_TESTS_TRAINER_STEP_WHOLE_STATE_H_
#define CKPT_TESTS_TRAINER_STEP_WHOLE_STATE_H_

#include <algorithm>
#include <bit>
#include <cstdint>
#include <map>
#include <mutex>
#include <set>
#include <span>
#include <string>
#include <vector>

#include "core/base/status.h"
#include "trainer/params/param_spec.h"

namespace ckpt::testing {

// By what a tensor is of ("", "exp_avg ") and its name. Ranks may add at once.
class WholeState {
 public:
  // Errors: kValueMismatch (two ranks hold different rows).
  Status Add(const std::string& kind, const trainer::ParamSpec& spec, std::int64_t row_begin,
             std::span<const float> rows) {
    const std::lock_guard lock(mutex_);
    Whole& whole = tensors_[kind + spec.name];
    whole.values.resize(static_cast<std::size_t>(NumElements(spec.shape)));
    whole.is_known.resize(whole.values.size());
    const std::int64_t row_elems = NumElements(spec.shape) / spec.shape.front();
    for (std::size_t i = 0; i < rows.size(); ++i) {
      const std::size_t at = static_cast<std::size_t>(row_begin * row_elems) + i;
      if (whole.is_known[at] && !HaveEqualBits(whole.values[at], rows[i])) {
        return Error(ErrorKind::kValueMismatch, "two ranks hold different values")
            .Tensor(spec.name);
      }
      whole.values[at] = rows[i];
      whole.is_known[at] = true;
    }
    return OkStatus();
  }

  [[nodiscard]] std::set<std::string> Names() const {
    std::set<std::string> names;
    for (const auto& [name, whole] : tensors_) names.insert(name);
    return names;
  }
  // Empty if some rank's rows are missing.
  [[nodiscard]] std::span<const float> Find(const std::string& name) const {
    const auto found = tensors_.find(name);
    if (found == tensors_.end() || std::ranges::count(found->second.is_known, false) > 0) return {};
    return found->second.values;
  }

 private:
  static bool HaveEqualBits(float a, float b) {
    return std::bit_cast<std::uint32_t>(a) == std::bit_cast<std::uint32_t>(b);
  }

  struct Whole {
    std::vector<float> values;
    std::vector<bool> is_known;
  };
  std::mutex mutex_;
  std::map<std::string, Whole> tensors_;
};

}  // namespace ckpt::testing

#endif  // CKPT_TESTS_TRAINER_STEP_WHOLE_STATE_H_
