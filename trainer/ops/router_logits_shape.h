// The operands of Ops::RouterLogitsBackward, checked in one place for all backends.
#ifndef CKPT_TRAINER_OPS_ROUTER_LOGITS_SHAPE_H_
#define CKPT_TRAINER_OPS_ROUTER_LOGITS_SHAPE_H_

#include <cstdint>

#include "trainer/device/tensor.h"
#include "trainer/ops/gradient.h"

namespace ckpt::trainer {

struct RouterLogitsShape {
  std::int64_t tokens = 0;   // T
  std::int64_t experts = 0;  // E
  std::int64_t columns = 0;  // H
};

// REQUIRES: what RouterLogitsBackward requires of shapes and dtypes.
[[nodiscard]] RouterLogitsShape RouterLogitsShapeOf(const Tensor& dlogits, const Tensor& x,
                                                    const Tensor& weight, const Tensor& dx,
                                                    const Gradient& dweight);

}  // namespace ckpt::trainer

#endif  // CKPT_TRAINER_OPS_ROUTER_LOGITS_SHAPE_H_
