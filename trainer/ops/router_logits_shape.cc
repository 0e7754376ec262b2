#include "trainer/ops/router_logits_shape.h"

#include "core/base/check.h"

namespace ckpt::trainer {

RouterLogitsShape RouterLogitsShapeOf(const Tensor& dlogits, const Tensor& x, const Tensor& weight,
                                      const Tensor& dx, const Gradient& dweight) {
  CKPT_CHECK(dlogits.ndim == 2 && x.ndim == 2 && weight.ndim == 2 && dx.ndim == 2);
  const RouterLogitsShape shape = {
      .tokens = dlogits.dim(0), .experts = dlogits.dim(1), .columns = x.dim(1)};
  CKPT_CHECK(x.dim(0) == shape.tokens && dx.dim(0) == shape.tokens && dx.dim(1) == shape.columns);
  CKPT_CHECK(weight.dim(0) == shape.experts && weight.dim(1) == shape.columns);
  CKPT_CHECK(x.dtype == weight.dtype && x.dtype == dx.dtype);
  CKPT_CHECK(dlogits.dtype == (x.dtype == DType::kFloat64 ? DType::kFloat64 : DType::kFloat32));
  CKPT_CHECK(!dweight || dweight.tensor.num_elems() == weight.num_elems());
  return shape;
}

}  // namespace ckpt::trainer
