// Squares of a shard's elements, summed by ranges.
#ifndef CKPT_TRAINER_DEVICE_CPU_INTERNAL_SUM_SQUARES_H_
#define CKPT_TRAINER_DEVICE_CPU_INTERNAL_SUM_SQUARES_H_

#include "trainer/device/tensor.h"

namespace ckpt::trainer {

// As Collectives::ReduceScatterInto says; nothing if `squares` is null.
void SumSquares(const Tensor& values, const Tensor& squares);

}  // namespace ckpt::trainer

#endif  // CKPT_TRAINER_DEVICE_CPU_INTERNAL_SUM_SQUARES_H_
