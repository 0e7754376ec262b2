// Moves tokens to rows sorted by expert, and back.
#include <cstdint>

#include "core/base/check.h"
#include "trainer/ops/cuda/cuda_ops_impl.h"
#include "trainer/ops/cuda/kernel.cuh"

namespace ckpt::trainer {
namespace cuda {
namespace {

constexpr int kMoveThreads = 128;  // one pack each of a row of 1024 elements

// Rows are more than the caches hold, so they pass through them without staying.
template <int kWidth, typename T>
__device__ __forceinline__ void StoreStreaming(T* to, std::int64_t pack,
                                               const Pack<T, kWidth>& values) {
  if constexpr (sizeof values % sizeof(uint4) == 0) {
    constexpr int kParts = sizeof values / sizeof(uint4);
    auto* const parts = reinterpret_cast<uint4*>(reinterpret_cast<Pack<T, kWidth>*>(to) + pack);
#pragma unroll
    for (int i = 0; i < kParts; ++i) {
      __stcs(parts + i, reinterpret_cast<const uint4*>(&values)[i]);
    }
  } else {
    StorePack(to, pack, values);
  }
}

// A block for each token, so that each is read once. The blocks after those make the rows in use
// that belong to no choice 0; each looks at kMoveThreads rows.
template <int kWidth, typename T>
__global__ void __launch_bounds__(kMoveThreads)
    PermuteKernel(const std::int32_t* rows, const std::int32_t* choices, const std::int32_t* count,
                  std::int64_t tokens, int topk, const T* x, const float* weights,
                  std::int64_t packs, T* y, float* row_weights) {
  AwaitEarlier();
  if (blockIdx.x < tokens) {
    const std::int64_t token = blockIdx.x;
    const std::int32_t* const mine = rows + token * topk;
    for (std::int64_t p = threadIdx.x; p < packs; p += kMoveThreads) {
      const auto pack = LoadPack<kWidth>(x, token * packs + p);
#pragma unroll 8
      for (int k = 0; k < topk; ++k) {
        const std::int64_t row = __ldg(mine + k);
        if (row >= 0) StoreStreaming(y, row * packs + p, pack);
      }
    }
    if (weights == nullptr) return;
    for (int k = threadIdx.x; k < topk; k += kMoveThreads) {
      if (mine[k] >= 0) row_weights[mine[k]] = weights[token * topk + k];
    }
    return;
  }
  const std::int64_t first = (blockIdx.x - tokens) * kMoveThreads;
  const std::int64_t end = min(first + kMoveThreads, static_cast<std::int64_t>(*count));
  const bool is_empty = first + threadIdx.x < end && choices[first + threadIdx.x] < 0;
  if (__syncthreads_or(is_empty) == 0) return;
  Pack<T, kWidth> zeros;
  for (T& value : zeros.values) value = Store<T>(0);
  for (std::int64_t row = first; row < end; ++row) {
    if (choices[row] >= 0) continue;
    for (std::int64_t p = threadIdx.x; p < packs; p += kMoveThreads) {
      StoreStreaming(y, row * packs + p, zeros);
    }
    if (weights != nullptr && threadIdx.x == 0) row_weights[row] = 0;
  }
}

// A block for each token. The rows of several choices are on their way at once.
template <int kWidth, typename T>
__global__ void __launch_bounds__(kMoveThreads)
    UnpermuteKernel(const std::int32_t* rows, int topk, const T* x, const float* row_weights,
                    std::int64_t packs, T* y, float* weights) {
  AwaitEarlier();
  constexpr int kAtOnce = 4;
  const std::int64_t token = blockIdx.x;
  const std::int32_t* const mine = rows + token * topk;
  for (std::int64_t p = threadIdx.x; p < packs; p += kMoveThreads) {
    float sums[kWidth] = {};
    for (int first = 0; first < topk; first += kAtOnce) {
      Pack<T, kWidth> loaded[kAtOnce];
      bool is_there[kAtOnce];
#pragma unroll
      for (int i = 0; i < kAtOnce; ++i) {
        const std::int64_t row = first + i < topk ? mine[first + i] : -1;
        is_there[i] = row >= 0;
        if (is_there[i]) loaded[i] = LoadPack<kWidth>(x, row * packs + p);
      }
#pragma unroll
      for (int i = 0; i < kAtOnce; ++i) {
#pragma unroll
        for (int j = 0; j < kWidth; ++j) {
          if (is_there[i]) sums[j] += Load(loaded[i].values[j]);
        }
      }
    }
    Pack<T, kWidth> result;
#pragma unroll
    for (int i = 0; i < kWidth; ++i) result.values[i] = Store<T>(sums[i]);
    StorePack(y, token * packs + p, result);
  }
  if (weights == nullptr) return;
  for (int k = threadIdx.x; k < topk; k += kMoveThreads) {
    weights[token * topk + k] = mine[k] < 0 ? 0 : row_weights[mine[k]];
  }
}

}  // namespace
}  // namespace cuda

void CudaOps::Permute(Queue& queue, const ExpertRows& sorted, const Tensor& x,
                      const Tensor& weights, const Tensor& y, const Tensor& row_weights) {
  CKPT_CHECK(x.dtype == y.dtype && x.ndim == 2 && y.ndim == 2 && x.dim(1) == y.dim(1));
  CKPT_CHECK(static_cast<bool>(weights) == static_cast<bool>(row_weights));
  CKPT_CHECK(x.dim(0) == sorted.rows.dim(0));
  if (y.num_elems() == 0) return;
  // Rows are only copied, so those of int32 go as others of 4 bytes.
  const DType moved = y.dtype == DType::kInt32 ? DType::kFloat32 : y.dtype;
  RunOnCuda(queue, [&](CudaQueue& on) {
    cuda::Dispatch(moved, [&](auto tag) {
      using T = typename decltype(tag)::type;
      cuda::DispatchWidth(y.dim(1), {x.data, y.data}, [&](auto width) {
        constexpr int kWidth = decltype(width)::kWidth;
        const std::int64_t tokens = sorted.rows.dim(0);
        const auto blocks =
            static_cast<unsigned int>(tokens) + cuda::Blocks(y.dim(0), cuda::kMoveThreads);
        cuda::Launch(on.stream(), cuda::PermuteKernel<kWidth, T>, {blocks, cuda::kMoveThreads},
                     sorted.rows.as<const std::int32_t>(), sorted.choices.as<const std::int32_t>(),
                     sorted.count().as<const std::int32_t>(), tokens,
                     static_cast<int>(sorted.rows.dim(1)), x.as<const T>(),
                     weights.as<const float>(), y.dim(1) / kWidth, y.as<T>(),
                     row_weights.as<float>());
      });
    });
  });
}

void CudaOps::Unpermute(Queue& queue, const ExpertRows& sorted, const Tensor& x,
                        const Tensor& row_weights, const Tensor& y, const Tensor& weights) {
  CKPT_CHECK(x.dtype == y.dtype && x.ndim == 2 && y.ndim == 2 && x.dim(1) == y.dim(1));
  CKPT_CHECK(static_cast<bool>(weights) == static_cast<bool>(row_weights));
  if (y.num_elems() == 0) return;
  RunOnCuda(queue, [&](CudaQueue& on) {
    cuda::Dispatch(y.dtype, [&](auto tag) {
      using T = typename decltype(tag)::type;
      cuda::DispatchWidth(y.dim(1), {x.data, y.data}, [&](auto width) {
        constexpr int kWidth = decltype(width)::kWidth;
        cuda::Launch(on.stream(), cuda::UnpermuteKernel<kWidth, T>,
                     {static_cast<unsigned int>(y.dim(0)), cuda::kMoveThreads},
                     sorted.rows.as<const std::int32_t>(), static_cast<int>(sorted.rows.dim(1)),
                     x.as<const T>(), row_weights.as<const float>(), y.dim(1) / kWidth, y.as<T>(),
                     weights.as<float>());
      });
    });
  });
}

}  // namespace ckpt::trainer
