// The parts of all ranks as kernels read them, and the order in which these add them.
#ifndef CKPT_TRAINER_DEVICE_CUDA_INTERNAL_PEER_PARTS_CUH_
#define CKPT_TRAINER_DEVICE_CUDA_INTERNAL_PEER_PARTS_CUH_

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <type_traits>

#include <cuda_bf16.h>

#include "core/base/check.h"
#include "trainer/device/cuda/internal/peer_kernels.h"
#include "trainer/device/cuda/packs.cuh"
#include "trainer/device/peer/peer_reader.h"

namespace ckpt::trainer::cuda {

// Threads of a block of a reduction.
inline constexpr int kReduceThreads = 512;

// The parts of all ranks, as a kernel takes them.
struct Parts {
  const void* of_rank[kMaxPeers];
  int count = 0;

  explicit Parts(const PeerReduction& reduction) {
    CKPT_CHECK(!reduction.parts.empty() && reduction.parts.size() <= kMaxPeers);
    for (const std::byte* part : reduction.parts) of_rank[count++] = part;
  }

  template <typename T>
  [[nodiscard]] __device__ const T* As(int rank) const {
    return static_cast<const T*>(of_rank[rank]);
  }
  // Whether these arrays and `out` can be read in packs.
  [[nodiscard]] bool AreAlignedWith(const void* out) const {
    const auto is_aligned = [](const void* at) {
      return reinterpret_cast<std::uintptr_t>(at) % 16 == 0;
    };
    return is_aligned(out) && std::all_of(of_rank, of_rank + count, is_aligned);
  }
};

__device__ __forceinline__ float Widen(Bf16 value) { return __bfloat162float(value); }
template <typename T>
__device__ __forceinline__ T Widen(T value) {
  return value;
}
// Rounds once, to nearest even.
template <typename Out, typename Wide>
__device__ __forceinline__ Out Narrow(Wide value) {
  if constexpr (std::is_same_v<Out, Bf16>) {
    return __float2bfloat16_rn(static_cast<float>(value));
  } else {
    return static_cast<Out>(value);
  }
}

// Adds in the wider of the two types, as the CPU does.
template <typename Out, typename Wide>
__device__ __forceinline__ void Write(Out& to, Wide value, bool adds) {
  if constexpr (std::is_same_v<Out, Bf16>) {
    to = Narrow<Out>(adds ? value + static_cast<Wide>(Widen(to)) : value);
  } else {
    to = adds ? to + static_cast<Out>(value) : static_cast<Out>(value);
  }
}

// --- one element ---------------------------------------------------------------------------------

struct Add {
  template <typename T>
  __device__ T operator()(T a, T b) const {
    return a + b;
  }
};

// Neighbours meet first: after rank r, partial results stand for as many ranks as the bits of r + 1
// say.
template <typename Stored, typename Wide, typename Combine>
__device__ __forceinline__ Wide CombineAt(const Parts& parts, std::int64_t i) {
  constexpr int kLevels = 7;  // kMaxPeers = 2^6
  const Combine combine;
  Wide partial[kLevels];
  int depth = 0;
  for (int rank = 0; rank < parts.count; ++rank) {
    Wide value = static_cast<Wide>(Widen(parts.As<Stored>(rank)[i]));
    for (int bits = rank; (bits & 1) != 0; bits >>= 1) value = combine(partial[--depth], value);
    partial[depth++] = value;
  }
  for (; depth > 1; --depth) partial[depth - 2] = combine(partial[depth - 2], partial[depth - 1]);
  return partial[0];
}

// --- a pack of elements --------------------------------------------------------------------------

// The tree over ranks [kBegin, kEnd); halves are powers of two here.
template <int kBegin, int kEnd, int kRanks, typename Stored, int kWidth>
__device__ __forceinline__ void SumPacks(const Pack<Stored, kWidth> (&packs)[kRanks],
                                         float (&sums)[kWidth]) {
  if constexpr (kEnd - kBegin == 1) {
#pragma unroll
    for (int i = 0; i < kWidth; ++i) sums[i] = Widen(packs[kBegin].values[i]);
  } else {
    constexpr int kMiddle = (kBegin + kEnd) / 2;
    float right[kWidth];
    SumPacks<kBegin, kMiddle>(packs, sums);
    SumPacks<kMiddle, kEnd>(packs, right);
#pragma unroll
    for (int i = 0; i < kWidth; ++i) sums[i] += right[i];
  }
}

template <int kRanks, typename Stored, int kWidth>
__device__ __forceinline__ void LoadParts(const Parts& parts, std::int64_t pack,
                                          Pack<Stored, kWidth> (&packs)[kRanks]) {
#pragma unroll
  for (int rank = 0; rank < kRanks; ++rank) {
    packs[rank] = LoadPack<kWidth>(parts.As<Stored>(rank), pack);
  }
}

// Stores sums, or adds them, and returns what is there then.
template <typename Out, int kWidth>
__device__ __forceinline__ Pack<Out, kWidth> WriteSums(Out* out, std::int64_t pack,
                                                       const float (&sums)[kWidth], bool adds) {
  Pack<Out, kWidth> result;
  if (adds) result = LoadPack<kWidth>(out, pack);
#pragma unroll
  for (int i = 0; i < kWidth; ++i) Write(result.values[i], sums[i], adds);
  StorePack(out, pack, result);
  return result;
}

}  // namespace ckpt::trainer::cuda

#endif  // CKPT_TRAINER_DEVICE_CUDA_INTERNAL_PEER_PARTS_CUH_
