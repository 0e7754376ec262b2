// Keys and values of latent attention: out of the latent's projection and the rotated key that all
// heads share, and back.
//
// A block has a token, so that places within it are small numbers, which divide fast.
#include <algorithm>
#include <cstdint>
#include <limits>

#include "core/base/check.h"
#include "trainer/ops/cuda/cuda_ops_impl.h"
#include "trainer/ops/cuda/kernel.cuh"

namespace ckpt::trainer {
namespace cuda {
namespace {

// MlaShape in packs.
struct LatentHeads {
  std::int32_t count = 0;
  std::int32_t nope = 0;
  std::int32_t rope = 0;
  std::int32_t value = 0;

  [[nodiscard]] __device__ std::int32_t key() const { return nope + rope; }
  [[nodiscard]] __device__ std::int32_t latent() const { return nope + value; }
};

// Begins the rows of this block's token in an array of `packs` a token.
template <typename Array>
__device__ __forceinline__ Array* OfToken(Array* array, std::int32_t packs) {
  return array + static_cast<std::int64_t>(blockIdx.x) * packs;
}

// A thread writes some packs of k, and of v.
template <typename P>
__global__ void __launch_bounds__(kThreads)
    SplitMlaKernel(LatentHeads heads, const P* kv, const P* k_rope, P* k, P* v) {
  AwaitEarlier();
  kv = OfToken(kv, heads.count * heads.latent());
  k_rope = OfToken(k_rope, heads.rope);
  k = OfToken(k, heads.count * heads.key());
  v = OfToken(v, heads.count * heads.value);
  const std::int32_t of_head = heads.key() + heads.value;
  for (auto at = static_cast<std::int32_t>(threadIdx.x); at < heads.count * of_head;
       at += kThreads) {
    const std::int32_t head = at / of_head;
    const std::int32_t i = at % of_head;
    const std::int32_t i_value = i - heads.key();
    if (i_value >= 0) {
      v[head * heads.value + i_value] = kv[head * heads.latent() + heads.nope + i_value];
    } else {
      k[head * heads.key() + i] =
          i < heads.nope ? kv[head * heads.latent() + i] : k_rope[i - heads.nope];
    }
  }
}

// dk_rope of this block's token. Each thread sums some heads for a pack of columns, then the first
// threads add the others' sums, so the order is fixed.
template <int kWidth, typename T>
__device__ __forceinline__ void SumRotatedKeys(const LatentHeads& heads, const Pack<T, kWidth>* dk,
                                               Pack<T, kWidth>* dk_rope) {
  __shared__ float sums[kThreads][kWidth];
  const auto thread = static_cast<std::int32_t>(threadIdx.x);
  for (std::int32_t first = 0; first < heads.rope; first += kThreads) {
    const std::int32_t columns = min(heads.rope - first, kThreads);
    const std::int32_t slots = kThreads / columns;
    const std::int32_t slot = thread / columns;
    float sum[kWidth] = {};
    if (slot < slots) {
      for (std::int32_t head = slot; head < heads.count; head += slots) {
        float added[kWidth];
        Unpack(dk[head * heads.key() + heads.nope + first + thread % columns], added);
#pragma unroll
        for (int i = 0; i < kWidth; ++i) sum[i] += added[i];
      }
    }
#pragma unroll
    for (int i = 0; i < kWidth; ++i) sums[thread][i] = sum[i];
    __syncthreads();
    if (thread < columns) {
      for (std::int32_t other = 1; other < min(slots, heads.count); ++other) {
#pragma unroll
        for (int i = 0; i < kWidth; ++i) sum[i] += sums[other * columns + thread][i];
      }
      dk_rope[first + thread] = Packed<T>(sum);
    }
    __syncthreads();
  }
}

template <int kWidth, typename T>
__global__ void __launch_bounds__(kThreads)
    SplitMlaBackwardKernel(LatentHeads heads, const Pack<T, kWidth>* dk, const Pack<T, kWidth>* dv,
                           Pack<T, kWidth>* dkv, Pack<T, kWidth>* dk_rope) {
  AwaitEarlier();
  dk = OfToken(dk, heads.count * heads.key());
  dv = OfToken(dv, heads.count * heads.value);
  dkv = OfToken(dkv, heads.count * heads.latent());
  for (auto at = static_cast<std::int32_t>(threadIdx.x); at < heads.count * heads.latent();
       at += kThreads) {
    const std::int32_t head = at / heads.latent();
    const std::int32_t i = at % heads.latent();
    dkv[at] = i < heads.nope ? dk[head * heads.key() + i] : dv[head * heads.value + i - heads.nope];
  }
  SumRotatedKeys<kWidth, T>(heads, dk, OfToken(dk_rope, heads.rope));
}

// Calls `body(heads, type, width)`: with packs if the parts of a head and the arrays fit.
template <typename Body>
void DispatchLatentHeads(const MlaShape& shape, DType dtype,
                         std::initializer_list<const void*> arrays, const Body& body) {
  CKPT_CHECK(shape.num_heads * (shape.nope_dim + shape.rope_dim + shape.v_dim) <=
             std::numeric_limits<std::int32_t>::max() - kThreads);
  const bool fits = FitsPacks(shape.nope_dim, arrays) && FitsPacks(shape.rope_dim, {}) &&
                    FitsPacks(shape.v_dim, {});
  Dispatch(dtype, [&](auto type) {
    const auto with_width = [&](auto width) {
      constexpr int kWidth = decltype(width)::kWidth;
      const auto packs = [](std::int64_t elems) {
        return static_cast<std::int32_t>(elems / kWidth);
      };
      body(LatentHeads{.count = static_cast<std::int32_t>(shape.num_heads),
                       .nope = packs(shape.nope_dim),
                       .rope = packs(shape.rope_dim),
                       .value = packs(shape.v_dim)},
           type, width);
    };
    if (fits) return with_width(WidthTag<kPackWidth>{});
    with_width(WidthTag<1>{});
  });
}

// Checks the operands, or their gradients. Returns the number of tokens.
std::int64_t CheckMla(const MlaShape& shape, const Tensor& kv, const Tensor& k_rope,
                      const Tensor& k, const Tensor& v) {
  const std::int64_t tokens = k_rope.num_elems() / shape.rope_dim;
  const std::int64_t heads = tokens * shape.num_heads;
  CKPT_CHECK(kv.num_elems() == heads * (shape.nope_dim + shape.v_dim));
  CKPT_CHECK(k.num_elems() == heads * (shape.nope_dim + shape.rope_dim));
  CKPT_CHECK(v.num_elems() == heads * shape.v_dim);
  CKPT_CHECK(kv.dtype == k.dtype && kv.dtype == v.dtype && kv.dtype == k_rope.dtype);
  return tokens;
}

}  // namespace
}  // namespace cuda

void CudaOps::SplitMlaKv(Queue& queue, const MlaShape& shape, const Tensor& kv,
                         const Tensor& k_rope, const Tensor& k, const Tensor& v) {
  const std::int64_t tokens = cuda::CheckMla(shape, kv, k_rope, k, v);
  if (tokens == 0) return;
  RunOnCuda(queue, [&](CudaQueue& on) {
    cuda::DispatchLatentHeads(
        shape, kv.dtype, {kv.data, k_rope.data, k.data, v.data},
        [&](const cuda::LatentHeads& heads, auto type, auto width) {
          using P = cuda::Pack<typename decltype(type)::type, decltype(width)::kWidth>;
          cuda::Launch(on.stream(), cuda::SplitMlaKernel<P>,
                       {static_cast<unsigned int>(tokens), cuda::kThreads}, heads, kv.as<const P>(),
                       k_rope.as<const P>(), k.as<P>(), v.as<P>());
        });
  });
}

void CudaOps::SplitMlaKvBackward(Queue& queue, const MlaShape& shape, const Tensor& dk,
                                 const Tensor& dv, const Tensor& dkv, const Tensor& dk_rope) {
  const std::int64_t tokens = cuda::CheckMla(shape, dkv, dk_rope, dk, dv);
  if (tokens == 0) return;
  RunOnCuda(queue, [&](CudaQueue& on) {
    cuda::DispatchLatentHeads(shape, dk.dtype, {dk.data, dv.data, dkv.data, dk_rope.data},
                              [&](const cuda::LatentHeads& heads, auto type, auto width) {
                                using T = typename decltype(type)::type;
                                constexpr int kWidth = decltype(width)::kWidth;
                                using P = cuda::Pack<T, kWidth>;
                                cuda::Launch(on.stream(), cuda::SplitMlaBackwardKernel<kWidth, T>,
                                             {static_cast<unsigned int>(tokens), cuda::kThreads},
                                             heads, dk.as<const P>(), dv.as<const P>(), dkv.as<P>(),
                                             dk_rope.as<P>());
                              });
  });
}

}  // namespace ckpt::trainer
