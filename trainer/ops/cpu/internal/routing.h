// What routing and balancing share.
#ifndef CKPT_TRAINER_OPS_CPU_INTERNAL_ROUTING_H_
#define CKPT_TRAINER_OPS_CPU_INTERNAL_ROUTING_H_

#include <cstdint>

#include "core/base/check.h"
#include "trainer/device/cpu/lane_sum.h"
#include "trainer/device/tensor.h"
#include "trainer/ops/cpu/internal/numeric.h"
#include "trainer/ops/cpu/internal/vector_loop.h"
#include "trainer/ops/moe_specs.h"

namespace ckpt::trainer {

// Added to a sum of sigmoid scores, so that tiny scores do not divide by zero. Transformers and
// Megatron use this value.
inline constexpr double kTinySum = 1e-20;

// The choice of padding, in every slot.
inline constexpr std::int32_t kNoExpert = -1;

// Whether the token with these choices is routed.
[[nodiscard]] inline bool IsRouted(const std::int32_t* chosen) { return chosen[0] != kNoExpert; }

struct RouterShape {
  std::int64_t tokens = 0;   // T
  std::int64_t experts = 0;  // E
  std::int64_t topk = 0;     // K
};

[[nodiscard]] inline RouterShape RouterShapeOf(const RouterForm& form, const Tensor& scores,
                                               const Tensor& experts) {
  CKPT_CHECK(scores.ndim == 2 && experts.ndim == 2 && experts.dtype == DType::kInt32);
  const RouterShape shape{scores.dim(0), scores.dim(1), experts.dim(1)};
  CKPT_CHECK(experts.dim(0) == shape.tokens && form.topk == shape.topk && shape.topk > 0);
  CKPT_CHECK(form.num_groups > 0 && shape.experts % form.num_groups == 0);
  CKPT_CHECK(form.group_topk > 0 && form.group_topk <= form.num_groups);
  CKPT_CHECK(shape.topk <= shape.experts / form.num_groups * form.group_topk);
  return shape;
}

inline void CheckSameLogits(const Tensor& a, const Tensor& b) {
  CKPT_CHECK(a.dtype == b.dtype && a.num_elems() == b.num_elems());
}

// Statistics are float32 or float64.
template <typename Body>
void DispatchStatistics(DType dtype, Body&& body) {
  if (dtype == DType::kFloat64) return body(TypeTag<double>{});
  CKPT_CHECK(dtype == DType::kFloat32);
  body(TypeTag<float>{});
}

// Adds a softmax's p·(dp - Σ p·dp) to dlogits [E]. dlogits may not be dp.
template <typename S>
void AddSoftmaxBackward(const S* p, const S* dp, std::int64_t count, S* dlogits) {
  const S mean = LaneSum<S>(count, [=](std::int64_t e) { return p[e] * dp[e]; });
  ForEach(0, count, [=](std::int64_t e) { dlogits[e] += p[e] * (dp[e] - mean); });
}

// Adds the gradient through sigmoids to dlogits [E].
template <typename S>
void AddSigmoidBackward(const S* scores, const S* dscores, std::int64_t count, S* dlogits) {
  ForEach(0, count,
          [=](std::int64_t e) { dlogits[e] += dscores[e] * scores[e] * (S{1} - scores[e]); });
}

}  // namespace ckpt::trainer

#endif  // CKPT_TRAINER_OPS_CPU_INTERNAL_ROUTING_H_
