#include "trainer/model/internal/activate.h"

namespace ckpt::trainer {

std::int64_t Fc1Rows(Activation activation, std::int64_t ffn_size) {
  return activation == Activation::kSwiGlu ? 2 * ffn_size : ffn_size;
}

void Activate(BlockContext& context, Activation activation, const Tensor& x,
              const ActivationRows& rows, const Tensor& y) {
  switch (activation) {
    case Activation::kSwiGlu:
      return context.ops.SwiGlu(context.queue, x, rows, y);
    case Activation::kGelu:
      return context.ops.Gelu(context.queue, x, rows, y);
  }
}

void ActivateBackward(BlockContext& context, Activation activation, const Tensor& dy,
                      const Tensor& x, const ActivationRows& rows, const Tensor& dx,
                      const Tensor& drow_weights, const Tensor& activated) {
  switch (activation) {
    case Activation::kSwiGlu:
      return context.ops.SwiGluBackward(context.queue, dy, x, rows, dx, drow_weights, activated);
    case Activation::kGelu:
      return context.ops.GeluBackward(context.queue, dy, x, rows, dx, drow_weights, activated);
  }
}

}  // namespace ckpt::trainer
