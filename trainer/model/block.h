// What the blocks of a model have in common.
#ifndef CKPT_TRAINER_MODEL_BLOCK_H_
#define CKPT_TRAINER_MODEL_BLOCK_H_

#include <cstdint>

#include "trainer/device/arena.h"
#include "trainer/device/device.h"
#include "trainer/ops/ops.h"

namespace ckpt::trainer {

// The dtype of scores, norms' statistics and losses.
inline DType StatisticsDtype(DType compute) {
  return compute == DType::kFloat64 ? DType::kFloat64 : DType::kFloat32;
}

// How the tokens of a micro-batch belong together, in device memory.
struct TokenLayout {
  // int32 [tokens]: the position of each, below the sequence's length; negative: padding. Null: its
  // place in its sequence, and no token is padding.
  Tensor positions = {};
  ExampleBounds examples = {};   // attention does not leave them
  std::int64_t num_padding = 0;  // tokens
};

// Everything runs on one queue. Forward keeps what its backward needs in the arena; the layer loop
// rewinds it.
//
// A block's Forward takes x [T, H] and writes y [T, H]; its Backward takes dy, writes or adds dx,
// and writes every gradient of its parameters once. Weights, and gradients, come in the order in
// which the block lists its ParamSpecs.
struct BlockContext {
  Ops& ops;
  Device& device;
  Queue& queue;
  Arena& arena;
  DType compute = DType::kFloat32;
  std::int64_t batch = 0;
  std::int64_t seq = 0;
  TokenLayout layout = {};

  [[nodiscard]] std::int64_t tokens() const { return batch * seq; }
  // Those that are not padding.
  [[nodiscard]] std::int64_t routed_tokens() const { return tokens() - layout.num_padding; }
  [[nodiscard]] DType statistics() const { return StatisticsDtype(compute); }
};

}  // namespace ckpt::trainer

#endif  // CKPT_TRAINER_MODEL_BLOCK_H_
