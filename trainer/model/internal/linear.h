// Linear: y = x·wᵀ + b.
#ifndef CKPT_TRAINER_MODEL_INTERNAL_LINEAR_H_
#define CKPT_TRAINER_MODEL_INTERNAL_LINEAR_H_

#include "trainer/model/block.h"

namespace ckpt::trainer {

// x [T, I], weight [O, I], bias [O] or null → y [T, O].
void Linear(BlockContext& context, const Tensor& x, const Tensor& weight, const Tensor& bias,
            const Tensor& y);

// dx = dy·w, or dx += dy·w with `accumulate`.
void LinearBackwardData(BlockContext& context, const Tensor& dy, const Tensor& weight,
                        bool accumulate, const Tensor& dx);
// dweight = dyᵀ·x and dbias = Σ dy; null ones are skipped.
void LinearBackwardWeights(BlockContext& context, const Tensor& dy, const Tensor& x,
                           const Gradient& dweight, const Gradient& dbias);
// Both of the above; dx is overwritten.
void LinearBackward(BlockContext& context, const Tensor& dy, const Tensor& x, const Tensor& weight,
                    const Tensor& dx, const Gradient& dweight, const Gradient& dbias);

}  // namespace ckpt::trainer

#endif  // CKPT_TRAINER_MODEL_INTERNAL_LINEAR_H_
