// What routing and balancing share.
#ifndef CKPT_TRAINER_OPS_CUDA_ROUTING_CUH_
#define CKPT_TRAINER_OPS_CUDA_ROUTING_CUH_

#include <cstdint>

#include "core/base/check.h"
#include "trainer/device/tensor.h"
#include "trainer/ops/cuda/kernel.cuh"
#include "trainer/ops/moe_specs.h"

namespace ckpt::trainer::cuda {

// Added to a sum of sigmoid scores, so that tiny scores do not divide by zero.
inline constexpr float kTinySum = 1e-20F;

// The choice of padding, in every slot.
inline constexpr std::int32_t kNoExpert = -1;

// A RouterForm and its shapes, as kernels take them.
struct RouterSizes {
  std::int64_t tokens = 0;
  int experts = 0;
  int topk = 0;
  int num_groups = 1;
  int group_topk = 1;
  ScoreFunction score = ScoreFunction::kSoftmax;
  bool adds_two = false;  // GroupScore::kTopTwoSum
  bool normalizes = false;
  bool is_assigned = false;
  float scaling = 1;
};

inline RouterSizes SizesOf(const RouterForm& form, const Tensor& scores, const Tensor& experts) {
  CKPT_CHECK(scores.ndim == 2 && scores.dtype == DType::kFloat32);
  CKPT_CHECK(experts.ndim == 2 && experts.dtype == DType::kInt32);
  CKPT_CHECK(experts.dim(0) == scores.dim(0) && experts.dim(1) == form.topk);
  CKPT_CHECK(form.num_groups > 0 && scores.dim(1) % form.num_groups == 0);
  return {.tokens = scores.dim(0),
          .experts = static_cast<int>(scores.dim(1)),
          .topk = static_cast<int>(form.topk),
          .num_groups = static_cast<int>(form.num_groups),
          .group_topk = static_cast<int>(form.group_topk),
          .score = form.score,
          .adds_two = form.group_score == GroupScore::kTopTwoSum,
          .normalizes = form.normalize,
          .is_assigned = form.is_assigned,
          .scaling = static_cast<float>(form.scaling)};
}

// The warp's number among those of the whole grid.
__device__ __forceinline__ std::int64_t WarpIndex() {
  return static_cast<std::int64_t>(blockIdx.x) * (blockDim.x / kWarp) + threadIdx.x / kWarp;
}

// Unsigned integers in the order of the floats; -0 is 0, as it is among floats.
__device__ __forceinline__ std::uint32_t OrderOf(float value) {
  const std::uint32_t bits = __float_as_uint(value + 0.0F);
  return (bits & 0x80000000U) != 0 ? ~bits : bits | 0x80000000U;
}

}  // namespace ckpt::trainer::cuda

#endif  // CKPT_TRAINER_OPS_CUDA_ROUTING_CUH_
