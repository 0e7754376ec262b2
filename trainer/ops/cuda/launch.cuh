// Launch: how kernels are put on a stream.
#ifndef CKPT_TRAINER_OPS_CUDA_LAUNCH_CUH_
#define CKPT_TRAINER_OPS_CUDA_LAUNCH_CUH_

#include <cstddef>
#include <type_traits>

#include <cuda_runtime.h>

namespace ckpt::trainer::cuda {

struct Grid {
  dim3 blocks;
  dim3 threads;
  std::size_t shared_bytes = 0;
};

// Every kernel that Launch() starts calls this before anything else, in all its threads: it waits
// until the work before the kernel is over, and lets the kernel after it be set up.
__device__ __forceinline__ void AwaitEarlier() {
#if __CUDA_ARCH__ >= 900
  cudaGridDependencySynchronize();
  cudaTriggerProgrammaticLaunchCompletion();
#endif
}

// Whether the GPUs can set up a kernel while the one before it still runs ("programmatic dependent
// launch"). All GPUs of a process are of one kind.
inline bool CanSetUpEarly() {
  static const bool can = [] {
    int gpu = 0;
    int major = 0;
    return cudaGetDevice(&gpu) == cudaSuccess &&
           cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, gpu) == cudaSuccess &&
           major >= 9;
  }();
  return can;
}

// Starts a kernel after all earlier work on the stream. Between two short kernels the GPU would
// stand still for as long as it takes to set up the second; so that happens early where it can. An
// error is left for cudaGetLastError().
template <typename... Parameters>
void Launch(cudaStream_t stream, void (*kernel)(Parameters...), const Grid& grid,
            std::type_identity_t<Parameters>... arguments) {
  cudaLaunchAttribute early = {};
  early.id = cudaLaunchAttributeProgrammaticStreamSerialization;
  early.val.programmaticStreamSerializationAllowed = 1;
  cudaLaunchConfig_t config = {};
  config.gridDim = grid.blocks;
  config.blockDim = grid.threads;
  config.dynamicSmemBytes = grid.shared_bytes;
  config.stream = stream;
  config.attrs = &early;
  config.numAttrs = CanSetUpEarly() ? 1 : 0;
  // With what a kernel declares itself, a block would have more than it gets without being asked.
  if (grid.shared_bytes >= 48 * 1024) {
    (void)cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                               static_cast<int>(grid.shared_bytes));
  }
  (void)cudaLaunchKernelEx(&config, kernel, arguments...);
}

}  // namespace ckpt::trainer::cuda

#endif  // CKPT_TRAINER_OPS_CUDA_LAUNCH_CUH_
