// What a rank's trainer keeps on the device in addition to parameters and activations.
#ifndef CKPT_TRAINER_STEP_STEP_MEMORY_H_
#define CKPT_TRAINER_STEP_STEP_MEMORY_H_

#include <cstdint>
#include <span>

#include "core/tensor/dtype.h"
#include "trainer/params/param_spec.h"
#include "trainer/params/shard_plan.h"
#include "trainer/step/train_config.h"

namespace ckpt::trainer {

// The arrays of a micro-batch with this many tokens, for any number of examples.
[[nodiscard]] std::uint64_t InputBytes(std::int64_t tokens);
// For this many micro-batches, a loss per token and one auxiliary loss each.
[[nodiscard]] std::uint64_t LossBytes(std::int64_t micro_batches, std::int64_t tokens,
                                      DType compute);

// The counts of the routing (DispatchCounts).
[[nodiscard]] std::uint64_t RoutingBytes();

// All of these for a step, plus the norm of its gradients. RankTrainer allocates exactly this. `units` and
// `plan` are the rank's.
[[nodiscard]] std::uint64_t StepBytes(const TrainConfig& config, std::span<const UnitSpec> units,
                                      const ShardPlan& plan);

}  // namespace ckpt::trainer

#endif  // CKPT_TRAINER_STEP_STEP_MEMORY_H_
