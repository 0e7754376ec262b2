// PacksAhead: what a thread has asked memory for while it computes.
#ifndef CKPT_TRAINER_OPS_CUDA_PACKS_AHEAD_CUH_
#define CKPT_TRAINER_OPS_CUDA_PACKS_AHEAD_CUH_

#include <cstddef>
#include <cstdint>

#include <cuda_pipeline_primitives.h>

#include "trainer/ops/cuda/kernel.cuh"

namespace ckpt::trainer::cuda {

// Packs are copied to shared memory, each to a slot of the thread that asks for it. So what is on
// its way takes no registers, and no barrier is needed: a thread reads only its own slots. Ask for
// a slot again only after what was read from it has been used. A barrier does not wait for what is
// on its way: await all of it before the memory is used for something else.
template <typename T, int kWidth, int kSlots, int kThreadsOfBlock>
class PacksAhead {
 public:
  using PackType = Pack<T, kWidth>;
  static constexpr int kWords = sizeof(PackType) / sizeof(uint4);  // 0: packs are too small
  static constexpr std::size_t kBytes = sizeof(PackType) * kSlots * kThreadsOfBlock;

  // `shared`: kBytes of the block's shared memory.
  __device__ explicit PacksAhead(void* shared)
      : words_(static_cast<uint4*>(shared) + threadIdx.x) {}

  // A pack that is not there is 0, and nothing is read.
  __device__ __forceinline__ void Ask(int slot, const T* from, std::int64_t pack,
                                      bool is_there = true) {
    const auto* words = reinterpret_cast<const uint4*>(from) + pack * kWords;
#pragma unroll
    for (int i = 0; i < kWords; ++i) {
      __pipeline_memcpy_async(words_ + (slot * kWords + i) * kThreadsOfBlock, words + i,
                              sizeof(uint4), is_there ? 0 : sizeof(uint4));
    }
  }
  // What was asked for since the last call is one batch, which may be empty.
  __device__ __forceinline__ void EndBatch() { __pipeline_commit(); }
  // Waits for all batches but the last kLeft.
  template <int kLeft>
  __device__ __forceinline__ void Await() {
    __pipeline_wait_prior(kLeft);
  }
  [[nodiscard]] __device__ __forceinline__ PackType Get(int slot) const {
    PackType pack;
#pragma unroll
    for (int i = 0; i < kWords; ++i) {
      reinterpret_cast<uint4*>(&pack)[i] = words_[(slot * kWords + i) * kThreadsOfBlock];
    }
    return pack;
  }

 private:
  uint4* const words_;
};

}  // namespace ckpt::trainer::cuda

#endif  // CKPT_TRAINER_OPS_CUDA_PACKS_AHEAD_CUH_
