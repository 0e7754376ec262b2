// The numbers of a step that stay on the device: what the host writes before the step, what the
// device sums and decides, and what the host reads when the step is over.
#ifndef CKPT_TRAINER_OPS_STEP_SCALARS_H_
#define CKPT_TRAINER_OPS_STEP_SCALARS_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "trainer/ops/exact_sum.h"

namespace ckpt::trainer {

// Each struct has this form in the memory of every device. The host fills or reads a copy of it.
// Tensors of them count words of 8 bytes.

// What an update reads. The gradient is the sum of the step times `scale`, then times `clip`, each
// time rounded to float32. So no pass over all gradients only scales them.
struct UpdateScalars {
  double lr = 0;
  // Of AdamW's update number n: 1 - beta1ⁿ, and the root of 1 - beta2ⁿ.
  double correction1 = 1;
  double root_correction2 = 1;
  double scale = 1;  // turns the sum into an average
  double clip = 1;   // limits the norm
  double skip = 0;   // if not 0, the update changes nothing
};

// What a step sums over the ranks, as int64: one AllReduce(kSum) adds all of it exactly, so every
// mesh gets the same bits. The sums of floating-point numbers are limbs of an ExactSum. A backend
// that promises less may use them as it likes, if the all-reduce still adds them. After this struct
// comes an int64 for each rank, in which it writes its peak memory.
struct StepSums {
  std::int64_t tokens = 0;  // with a label
  ExactSum::Limbs loss{};
  ExactSum::Limbs aux_loss{};
  ExactSum::Limbs squares{};    // of all elements of the gradient
  std::int64_t overflows = 0;   // ranks on which something had no room
  std::int64_t dropped = 0;     // choices of experts that had no room
  std::int64_t stop_votes = 0;  // ranks that were asked to end the run
};

// Why a step updates nothing.
enum class StepFailure : std::int64_t {
  kNone,
  kLoss,      // a loss is not finite
  kGradient,  // a gradient is not finite
  kOverflow,  // something had no room
  kEarlier,   // a step before it failed
};

// Equal on every rank, except `bad_row`.
struct StepOutcome {
  double loss = 0;
  double aux_loss = 0;
  double grad_norm = 0;  // before clipping
  double scale = 1;      // of UpdateScalars
  double clip = 1;
  std::int64_t tokens = 0;
  std::int64_t dropped = 0;
  std::int64_t stop_votes = 0;
  std::int64_t peak_bytes = 0;  // of the rank with the highest peak
  StepFailure failure = StepFailure::kNone;
  std::int64_t bad_row = -1;  // the first of this rank's rows whose sum is not finite; -1: none
};

// What a step's outcome depends on besides its sums.
struct StepRule {
  double clip_grad = 0;  // largest norm of the gradients; 0: no clipping
  // Whether the loss is the mean over all counted tokens. Otherwise it is the mean over the
  // micro-batches of their means.
  bool per_token_loss = false;
  std::int64_t num_batches = 1;  // micro-batches of all ranks
};

// What the compute queue of a rank is at.
enum class StepPhase : std::int64_t {
  kIdle,  // between steps
  kForward,
  kBackward,    // from the head on, whose loss and gradients are computed together
  kGatherWait,  // weights of other ranks have not arrived
  kReduceWait,  // sums of gradients are not complete
  kUpdate,      // norm, what the ranks report, optimizer
};
inline constexpr std::array<std::string_view, 6> kStepPhaseNames = {
    "idle", "forward", "backward", "gather_wait", "reduce_wait", "update"};
inline constexpr std::size_t kNumStepPhases = kStepPhaseNames.size();

// How long the compute queue was in each phase since `ns` was zeroed.
struct PhaseTimes {
  std::int64_t phase = 0;                // the current StepPhase, whose time is not in `ns` yet
  std::int64_t since_ns = 0;             // when it began, by the device's clock; 0: it never did
  std::int64_t ns[kNumStepPhases] = {};  // by StepPhase
};

// Number of words, the length of a tensor.
template <typename Scalars>
inline constexpr auto kWordsOf = static_cast<std::int64_t>(sizeof(Scalars) / sizeof(std::int64_t));

}  // namespace ckpt::trainer

#endif  // CKPT_TRAINER_OPS_STEP_SCALARS_H_
