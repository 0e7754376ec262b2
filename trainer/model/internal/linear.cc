#include "trainer/model/internal/linear.h"

namespace ckpt::trainer {

void Linear(BlockContext& context, const Tensor& x, const Tensor& weight, const Tensor& bias,
            const Tensor& y) {
  context.ops.Gemm(context.queue, {.transpose_b = true}, x, weight, y);
  if (bias) context.ops.AddBias(context.queue, y, bias);
}

void LinearBackwardData(BlockContext& context, const Tensor& dy, const Tensor& weight,
                        bool accumulate, const Tensor& dx) {
  context.ops.Gemm(context.queue, {.accumulate = accumulate}, dy, weight, dx);
}

void LinearBackwardWeights(BlockContext& context, const Tensor& dy, const Tensor& x,
                           const Gradient& dweight, const Gradient& dbias) {
  if (dweight) {
    context.ops.Gemm(context.queue, {.transpose_a = true, .accumulate = dweight.adds()}, dy, x,
                     dweight.tensor);
  }
  if (dbias) context.ops.BiasBackward(context.queue, dy, dbias);
}

void LinearBackward(BlockContext& context, const Tensor& dy, const Tensor& x, const Tensor& weight,
                    const Tensor& dx, const Gradient& dweight, const Gradient& dbias) {
  LinearBackwardData(context, dy, weight, /*accumulate=*/false, dx);
  LinearBackwardWeights(context, dy, x, dweight, dbias);
}

}  // namespace ckpt::trainer
