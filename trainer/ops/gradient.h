// Gradient: where the gradient of a parameter goes, and whether it is the first to go there.
#ifndef CKPT_TRAINER_OPS_GRADIENT_H_
#define CKPT_TRAINER_OPS_GRADIENT_H_

#include <cstdint>

#include "trainer/device/tensor.h"

namespace ckpt::trainer {

// How an op writes a gradient. What was stored is what would have been added to zeros, but for the
// sign of a zero: 0 + -0 is 0, and a store may leave -0. No later sum, norm or update can tell.
enum class GradWrite : std::uint8_t {
  kStore,  // every element is overwritten, whatever was there: memory need not be cleared
  kAdd,
};

// A null one belongs to a frozen parameter: it is not computed.
struct Gradient {
  Tensor tensor;
  GradWrite write = GradWrite::kStore;

  explicit operator bool() const { return static_cast<bool>(tensor); }
  [[nodiscard]] bool adds() const { return write == GradWrite::kAdd; }
};

}  // namespace ckpt::trainer

#endif  // CKPT_TRAINER_OPS_GRADIENT_H_
