// SwiGLU of one element, wherever a kernel computes it: all of them give the same bits.
#ifndef CKPT_TRAINER_OPS_CUDA_SWIGLU_CUH_
#define CKPT_TRAINER_OPS_CUDA_SWIGLU_CUH_

namespace ckpt::trainer::cuda {

__device__ __forceinline__ float Sigmoid(float x) { return __fdividef(1, 1 + __expf(-x)); }

// silu(gate)·up
__device__ __forceinline__ float SwiGluOf(float gate, float up) {
  return gate * Sigmoid(gate) * up;
}

}  // namespace ckpt::trainer::cuda

#endif  // CKPT_TRAINER_OPS_CUDA_SWIGLU_CUH_
