// How far two runs of the same batch may be apart that round differently.
#ifndef CKPT_TRAINER_CHECK_RUN_COMPARISON_H_
#define CKPT_TRAINER_CHECK_RUN_COMPARISON_H_

#include "trainer/check/comparison.h"

namespace ckpt::train {

// Gradients are told by the trainer's names. REQUIRES: runs of one model and batch, with logits.
[[nodiscard]] Comparison CompareRuns(const Computed& expected, const Computed& actual);

// Errors as in a Comparison.
struct ErrorBounds {
  double loss = 0;
  double logits = 0;
  double gradients = 0;  // of each

  [[nodiscard]] bool Hold(const Comparison& errors) const;
};

// Rounding moves `rounded` away from `exact`, the same run in a wider type. Another run in the
// rounded type rounds as many results, in other places: it may be twice as far from the exact
// numbers, and so three times as far from `rounded`. The loss is bounded by the logits, of which it
// is a difference: how near a single number is to another may be luck.
[[nodiscard]] ErrorBounds BoundsOfRounding(const Computed& exact, const Computed& rounded);

}  // namespace ckpt::train

#endif  // CKPT_TRAINER_CHECK_RUN_COMPARISON_H_
