// Gradient: where the gradient of a parameter goes, and whether it is stored or added there.
#ifndef CKPT_TRAINER_OPS_GRADIENT_H_
#define CKPT_TRAINER_OPS_GRADIENT_H_

#include "trainer/device/grad_write.h"
#include "trainer/device/tensor.h"

namespace ckpt::trainer {

// A null Gradient belongs to a frozen parameter and is not computed.
struct Gradient {
  Tensor tensor;
  GradWrite write = GradWrite::kStore;

  explicit operator bool() const { return static_cast<bool>(tensor); }
  [[nodiscard]] bool adds() const { return write == GradWrite::kAdd; }
};

}  // namespace ckpt::trainer

#endif  // CKPT_TRAINER_OPS_GRADIENT_H_
