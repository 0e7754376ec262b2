// What the kernels share: element types, packs of elements, sums over a group of threads.
#ifndef CKPT_TRAINER_OPS_CUDA_KERNEL_CUH_
#define CKPT_TRAINER_OPS_CUDA_KERNEL_CUH_

#include <cstdint>
#include <cstring>
#include <initializer_list>
#include <type_traits>
#include <utility>

#include <cuda_bf16.h>
#include <cuda_runtime.h>

#include "core/base/check.h"
#include "core/tensor/dtype.h"
#include "trainer/device/cuda/cuda_queue.h"
#include "trainer/device/cuda/packs.cuh"
#include "trainer/device/tensor.h"
#include "trainer/ops/cuda/launch.cuh"
#include "trainer/ops/gradient.h"

namespace ckpt::trainer::cuda {

// Where the next array in scratch memory may begin.
constexpr std::uint64_t AlignedBytes(std::uint64_t size_bytes) {
  return (size_bytes + 255) / 256 * 256;
}

// --- elements ------------------------------------------------------------------------------------

__device__ __forceinline__ float Load(float value) { return value; }
__device__ __forceinline__ float Load(Bf16 value) { return __bfloat162float(value); }

// Rounds once, to nearest even.
template <typename T>
__device__ __forceinline__ T Store(float value);
template <>
__device__ __forceinline__ float Store<float>(float value) {
  return value;
}
template <>
__device__ __forceinline__ Bf16 Store<Bf16>(float value) {
  return __float2bfloat16_rn(value);
}

// Stores or adds one element of a gradient.
template <typename T>
__device__ __forceinline__ void WriteGradient(T& to, float value, bool adds) {
  to = Store<T>(adds ? Load(to) + value : value);
}

template <typename T>
struct TypeTag {
  using type = T;
};

// Calls `body(TypeTag<T>{})` with the element type of a compute dtype.
template <typename Body>
void Dispatch(DType dtype, const Body& body) {
  switch (dtype) {
    case DType::kFloat32:
      return body(TypeTag<float>{});
    case DType::kBfloat16:
      return body(TypeTag<Bf16>{});
    default:
      CKPT_CHECK(false && "a dtype that the GPU's operations do not take");
  }
}

// --- packs ---------------------------------------------------------------------------------------

// Elements of a pack as floats, and back, rounded. Each element of a pair becomes a float by one
// instruction, for a bfloat16 is the first half of a float; a pair is rounded by one, too.
template <typename T, int kWidth>
__device__ __forceinline__ void Unpack(const Pack<T, kWidth>& pack, float (&values)[kWidth]) {
  if constexpr (std::is_same_v<T, Bf16> && kWidth % 2 == 0) {
#pragma unroll
    for (int i = 0; i < kWidth; i += 2) {
      std::uint32_t pair = 0;
      memcpy(&pair, &pack.values[i], sizeof(pair));
      values[i] = __uint_as_float(pair << 16);
      values[i + 1] = __uint_as_float(pair & 0xFFFF0000U);
    }
  } else {
#pragma unroll
    for (int i = 0; i < kWidth; ++i) values[i] = Load(pack.values[i]);
  }
}
template <typename T, int kWidth>
__device__ __forceinline__ Pack<T, kWidth> Packed(const float (&values)[kWidth]) {
  Pack<T, kWidth> pack;
  if constexpr (std::is_same_v<T, Bf16> && kWidth % 2 == 0) {
#pragma unroll
    for (int i = 0; i < kWidth; i += 2) {
      const __nv_bfloat162 pair = __floats2bfloat162_rn(values[i], values[i + 1]);
      pack.values[i] = pair.x;
      pack.values[i + 1] = pair.y;
    }
  } else {
#pragma unroll
    for (int i = 0; i < kWidth; ++i) pack.values[i] = Store<T>(values[i]);
  }
  return pack;
}
// The floats that are left of values when they are rounded to T.
template <typename T, int kWidth>
__device__ __forceinline__ void Round(float (&values)[kWidth]) {
  if constexpr (!std::is_same_v<T, float>) Unpack(Packed<T>(values), values);
}

// Whether arrays can be read in packs: each begins at a multiple of 16 bytes, and so does each of
// its rows of `columns` elements.
inline bool FitsPacks(std::int64_t columns, std::initializer_list<const void*> arrays) {
  if (columns % kPackWidth != 0) return false;
  for (const void* array : arrays) {
    if (reinterpret_cast<std::uintptr_t>(array) % 16 != 0) return false;
  }
  return true;
}

template <int kValue>
struct WidthTag {
  static constexpr int kWidth = kValue;
};

// Calls `body(WidthTag<…>{})`: with packs if the arrays fit, else with single elements.
template <typename Body>
void DispatchWidth(std::int64_t columns, std::initializer_list<const void*> arrays,
                   const Body& body) {
  if (FitsPacks(columns, arrays)) return body(WidthTag<kPackWidth>{});
  body(WidthTag<1>{});
}

// --- launches ------------------------------------------------------------------------------------

inline constexpr int kThreads = 256;
inline constexpr int kMultiprocessors = 132;  // of an H100 or H200; others work with any number

inline unsigned int Blocks(std::int64_t items, std::int64_t per_block) {
  return static_cast<unsigned int>((items + per_block - 1) / per_block);
}

// out[i] = f(in[i]…), rounded to the type of `out`, for 0 <= i < packs · kWidth.
template <int kWidth, typename Out, typename Function, typename... In>
__global__ void MapKernel(std::int64_t packs, Out* out, Function f, const In*... in) {
  AwaitEarlier();
  const std::int64_t pack = static_cast<std::int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
  if (pack >= packs) return;
  const auto apply = [&](const auto&... loaded) {
    Pack<Out, kWidth> result;
#pragma unroll
    for (int i = 0; i < kWidth; ++i) result.values[i] = Store<Out>(f(Load(loaded.values[i])...));
    StorePack(out, pack, result);
  };
  apply(LoadPack<kWidth>(in, pack)...);
}

// `out` may be one of the inputs.
template <typename Out, typename Function, typename... In>
void Map(cudaStream_t stream, std::int64_t elems, Out* out, Function f, const In*... in) {
  if (elems == 0) return;
  DispatchWidth(elems, {out, in...}, [&](auto width) {
    constexpr int kWidth = decltype(width)::kWidth;
    const std::int64_t packs = elems / kWidth;
    Launch(stream, MapKernel<kWidth, Out, Function, In...>, {Blocks(packs, kThreads), kThreads},
           packs, out, f, in...);
  });
}

// --- sums over threads ---------------------------------------------------------------------------

__device__ __forceinline__ float WarpSum(float value) {
#pragma unroll
  for (int distance = kWarp / 2; distance > 0; distance /= 2) {
    value += __shfl_xor_sync(0xFFFFFFFFU, value, distance);
  }
  return value;
}

__device__ __forceinline__ float WarpMax(float value) {
#pragma unroll
  for (int distance = kWarp / 2; distance > 0; distance /= 2) {
    value = fmaxf(value, __shfl_xor_sync(0xFFFFFFFFU, value, distance));
  }
  return value;
}

// The sum over `kGroup` consecutive threads, a warp or a whole block of that many; every thread
// gets it. A block has `kGroup` threads or, if kGroup is a warp, any number of warps. The order of
// additions is fixed.
template <int kGroup>
__device__ __forceinline__ float GroupSum(float value) {
  value = WarpSum(value);
  if constexpr (kGroup > kWarp) {
    __shared__ float sums[kGroup / kWarp];
    __syncthreads();  // the sums of an earlier call were read
    if (threadIdx.x % kWarp == 0) sums[threadIdx.x / kWarp] = value;
    __syncthreads();
    value = 0;
#pragma unroll
    for (float sum : sums) value += sum;
  }
  return value;
}

// --- sums over rows ------------------------------------------------------------------------------

// Sums of columns over many rows, in a fixed order and without atomics: every block sums some rows
// into its part of `partials` [kSumBlocks, columns], and WriteColumnSums adds the parts.
inline constexpr int kSumBlocks = 2 * kMultiprocessors;

inline constexpr int kMostColumnSums = 2;  // of one call

// gradients[i] [columns] (=, +=) Σ over the rows of partials[i], in partials [gradients, num_parts,
// columns]. Those that are null are left out; the others have one dtype and size.
void WriteColumnSums(cudaStream_t stream, const float* partials, int num_parts,
                     std::initializer_list<Gradient> gradients);

}  // namespace ckpt::trainer::cuda

#endif  // CKPT_TRAINER_OPS_CUDA_KERNEL_CUH_
