// Packs: elements that a thread loads and stores at once.
#ifndef CKPT_TRAINER_DEVICE_CUDA_PACKS_CUH_
#define CKPT_TRAINER_DEVICE_CUDA_PACKS_CUH_

#include <cstdint>

#include <cuda_bf16.h>

namespace ckpt::trainer::cuda {

using Bf16 = __nv_bfloat16;

inline constexpr int kWarp = 32;
// Elements of a pack where rows and arrays begin at multiples of it; elsewhere a pack is one
// element.
inline constexpr int kPackWidth = 8;

// Consecutive elements, by accesses of 16 bytes where they have as many.
template <typename T, int kWidth>
struct alignas(sizeof(T) * kWidth < 16 ? sizeof(T) * kWidth : 16) Pack {
  T values[kWidth];
};

template <int kWidth, typename T>
__device__ __forceinline__ Pack<T, kWidth> LoadPack(const T* from, std::int64_t pack) {
  return reinterpret_cast<const Pack<T, kWidth>*>(from)[pack];
}
template <int kWidth, typename T>
__device__ __forceinline__ void StorePack(T* to, std::int64_t pack, const Pack<T, kWidth>& values) {
  reinterpret_cast<Pack<T, kWidth>*>(to)[pack] = values;
}

}  // namespace ckpt::trainer::cuda

#endif  // CKPT_TRAINER_DEVICE_CUDA_PACKS_CUH_
