// Gradient: where the gradient of a parameter goes, and whether it is stored or added there.
#ifndef CKPT_TRAINER_OPS_GRADIENT_H_
#define CKPT_TRAINER_OPS_GRADIENT_H_

#include <cstdint>

#include "trainer/device/tensor.h"

namespace ckpt::trainer {

// How an op writes a gradient. Storing gives the same as adding to zeros, except for the sign of a
// zero: 0 + -0 is 0, but a store may leave -0. Later sums, norms and updates do not depend on that
// sign.
enum class GradWrite : std::uint8_t {
  kStore,  // overwrites every element, so memory need not be cleared
  kAdd,
};

// A null Gradient belongs to a frozen parameter and is not computed.
struct Gradient {
  Tensor tensor;
  GradWrite write = GradWrite::kStore;

  explicit operator bool() const { return static_cast<bool>(tensor); }
  [[nodiscard]] bool adds() const { return write == GradWrite::kAdd; }
};

}  // namespace ckpt::trainer

#endif  // CKPT_TRAINER_OPS_GRADIENT_H_
