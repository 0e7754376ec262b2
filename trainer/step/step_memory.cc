#include "trainer/step/step_memory.h"

#include "trainer/model/block.h"
#include "trainer/step/grad_norm.h"

namespace ckpt::trainer {

std::uint64_t InputBytes(std::int64_t tokens) {
  // Tokens, labels, positions, cu_seqlens with one entry more, lengths.
  return static_cast<std::uint64_t>(5 * tokens + 1) * sizeof(std::int32_t);
}

std::uint64_t LossBytes(std::int64_t micro_batches, std::int64_t tokens, DType compute) {
  return static_cast<std::uint64_t>(micro_batches * (tokens + 1)) *
         ElementBytes(StatisticsDtype(compute));
}

std::uint64_t RoutingBytes() { return 2 * sizeof(std::int64_t); }

std::uint64_t StepBytes(const TrainConfig& config, std::span<const UnitSpec> units,
                        const ShardPlan& plan) {
  const std::int64_t tokens = config.micro_batch_size * config.seq_length;
  return NormBytes(CountNormRows(units, plan)) + RoutingBytes() + InputBytes(tokens) +
         LossBytes(config.num_micro_batches(), tokens, config.precision.compute);
}

}  // namespace ckpt::trainer
