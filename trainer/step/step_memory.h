// What a rank's trainer keeps on the device beside parameters and activations.
#ifndef CKPT_TRAINER_STEP_STEP_MEMORY_H_
#define CKPT_TRAINER_STEP_STEP_MEMORY_H_

#include <cstdint>
#include <span>

#include "core/tensor/dtype.h"
#include "trainer/params/param_spec.h"
#include "trainer/params/shard_plan.h"
#include "trainer/step/train_config.h"

namespace ckpt::trainer {

// The arrays of a micro-batch of so many tokens, whatever examples they are.
[[nodiscard]] std::uint64_t InputBytes(std::int64_t tokens);
// A loss for each token and one auxiliary loss, of so many micro-batches.
[[nodiscard]] std::uint64_t LossBytes(std::int64_t micro_batches, std::int64_t tokens,
                                      DType compute);

// Both for a step, and what the norm of its gradients takes. RankTrainer allocates exactly this. `units` and `plan` are
// those of a rank.
[[nodiscard]] std::uint64_t StepBytes(const TrainConfig& config, std::span<const UnitSpec> units,
                                      const ShardPlan& plan);

}  // namespace ckpt::trainer

#endif  // CKPT_TRAINER_STEP_STEP_MEMORY_H_
