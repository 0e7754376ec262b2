// Whether a run that was resumed is the run that was never interrupted.
#ifndef CKPT_TOOLS_CKPT_TRAIN_EXPERIMENT_INTERNAL_VERDICT_H_
#define CKPT_TOOLS_CKPT_TRAIN_EXPERIMENT_INTERNAL_VERDICT_H_

#include <cstdint>
#include <vector>

#include "core/base/status.h"
#include "tools/ckpt-train/experiment/internal/leg.h"
#include "tools/ckpt-train/experiment/internal/topologies.h"

namespace ckpt::train {

// Of one step, relative to the uninterrupted run; 0 only where the numbers are the same bit for
// bit.
struct Deviation {
  std::int64_t step = 0;
  double loss = 0;
  double grad_norm = 0;
};

struct ResumeVerdict {
  std::vector<Deviation> deviations;  // of every resumed step
  double largest_loss = 0;
  double largest_norm = 0;
  std::int64_t equal_steps = 0;   // loss and gradient norm bit for bit
  bool is_loaded_equal = false;   // the state right after loading is the one that was saved
  bool is_end_equal = false;      // and the one after the last step that of the uninterrupted run
  std::int64_t moved_biases = 0;  // experts whose bias differs after the last step
  // What was not to differ and does: kValueMismatch, one problem for each, that names the case.
  Status failures;

  [[nodiscard]] bool is_bit_equal() const {
    return equal_steps == static_cast<std::int64_t>(deviations.size()) && is_end_equal;
  }
};

// Compares after loading: the digest of the state, router biases, progress and seed. On the way:
// loss, norm, and the samples that were read with what was in them. At the end: the digest again.
//
// `saved` is what was resumed from. REQUIRES: both legs took at least a step, `whole` those of
// `resumed` among others and a station where `resumed` ends.
[[nodiscard]] ResumeVerdict JudgeResume(const ReshardCase& resumed_case, const Leg& resumed,
                                        const Station& saved, const Leg& whole);

}  // namespace ckpt::train

#endif  // CKPT_TOOLS_CKPT_TRAIN_EXPERIMENT_INTERNAL_VERDICT_H_
