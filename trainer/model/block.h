// What all blocks of a model share.
#ifndef CKPT_TRAINER_MODEL_BLOCK_H_
#define CKPT_TRAINER_MODEL_BLOCK_H_

#include <cstdint>

#include "trainer/device/arena.h"
#include "trainer/device/device.h"
#include "trainer/ops/ops.h"

namespace ckpt::trainer {

// The dtype of scores, of norms' statistics and of losses.
inline DType StatisticsDtype(DType compute) {
  return compute == DType::kFloat64 ? DType::kFloat64 : DType::kFloat32;
}

// What Backward computes again instead of keeping it.
enum class Recompute : std::uint8_t {
  kNone,
  kActivations,  // the results of feed-forward activations
  kLayers,       // everything but each layer's input and its routing
};

// Which tokens of a micro-batch belong together, in device memory.
struct TokenLayout {
  // int32 [tokens]: the position of each token, below the sequence's length; negative for padding.
  // Null: a token's position is its place in its sequence, and no token is padding.
  Tensor positions = {};
  ExampleBounds examples = {};   // attention stays within an example
  std::int64_t num_padding = 0;  // number of padding tokens
};

// Everything runs on one queue. Forward keeps in the arena what Backward needs; the loop over
// layers rewinds the arena.
//
// A block's Forward takes x [T, H] and writes y [T, H]. Its Backward takes dy, writes or adds dx,
// and writes every gradient of its parameters once. Weights and gradients are in the order in which
// the block lists its ParamSpecs.
struct BlockContext {
  Ops& ops;
  Device& device;
  Queue& queue;
  Arena& arena;
  DType compute = DType::kFloat32;
  std::int64_t batch = 0;
  std::int64_t seq = 0;
  TokenLayout layout = {};
  Recompute recompute = Recompute::kNone;

  [[nodiscard]] std::int64_t tokens() const { return batch * seq; }
  // Tokens that are not padding.
  [[nodiscard]] std::int64_t routed_tokens() const { return tokens() - layout.num_padding; }
  [[nodiscard]] DType statistics() const { return StatisticsDtype(compute); }
};

}  // namespace ckpt::trainer

#endif  // CKPT_TRAINER_MODEL_BLOCK_H_
