// How a warp sums the squares of a row of gradients, in a fixed order: a lane adds its packs from
// left to right, lane l the packs l, l + 32, …; then the lanes meet.
#ifndef CKPT_TRAINER_DEVICE_CUDA_ROW_SQUARES_CUH_
#define CKPT_TRAINER_DEVICE_CUDA_ROW_SQUARES_CUH_

#include "trainer/device/cuda/packs.cuh"

namespace ckpt::trainer::cuda {

// A float's square is exact in double, so each addition rounds once.
template <int kWidth>
__device__ __forceinline__ void AddSquaresOf(const float (&values)[kWidth], double& sum) {
#pragma unroll
  for (const float value : values) {
    const double wide = value;
    sum = __fma_rn(wide, wide, sum);
  }
}

// The sum over the lanes of a warp; every lane gets it.
__device__ __forceinline__ double SumOfWarp(double sum) {
#pragma unroll
  for (int distance = kWarp / 2; distance > 0; distance /= 2) {
    sum += __shfl_xor_sync(0xFFFFFFFFU, sum, distance);
  }
  return sum;
}

}  // namespace ckpt::trainer::cuda

#endif  // CKPT_TRAINER_DEVICE_CUDA_ROW_SQUARES_CUH_
