// The order in which ranks' values are combined: one implementation for all backends.
#ifndef CKPT_TRAINER_DEVICE_CPU_INTERNAL_REDUCE_TREE_H_
#define CKPT_TRAINER_DEVICE_CPU_INTERNAL_REDUCE_TREE_H_

#include <cstddef>
#include <cstdint>
#include <span>

#include "core/tensor/dtype.h"
#include "trainer/device/collectives.h"
#include "trainer/device/grad_write.h"

namespace ckpt::trainer {

// out[i] = inputs[0][i] ∘ inputs[1][i] ∘ …, by the binary tree that `Collectives` documents. The
// inputs [lo, hi) are split at lo + m, where m is the largest power of two below hi - lo, and both
// halves are combined in the same way. `out` may be one of the inputs.
//
// kSum: float32, float64, bfloat16 (in float32, rounded once), int32, int64 (both wrap). kMax: the
// same except bfloat16; a NaN wins.
// REQUIRES: at least one input, `count` elements each, aligned as their type.
void ReduceByTree(ReduceOp op, DType dtype, std::span<const std::byte* const> inputs,
                  std::byte* out, std::int64_t count);

// `out` of dtype `sums` gets the sum of inputs of dtype `wire`, by the same tree, or the sum is
// added to it. float32 and bfloat16 are summed in float32, float64 in float64; the result is
// rounded once, when it is written. Integers have one dtype.
void SumByTree(DType wire, std::span<const std::byte* const> inputs, DType sums, GradWrite write,
               std::byte* out, std::int64_t count);

}  // namespace ckpt::trainer

#endif  // CKPT_TRAINER_DEVICE_CPU_INTERNAL_REDUCE_TREE_H_
