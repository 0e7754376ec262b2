// Products of ranges of rows with a matrix each. Offsets are read by the kernels, so the host never
// knows how many rows an expert has.
//
// GroupedProducts are the fast way; the kernels of this file compute what those do not cover. Each
// block computes a tile of the result.
#include <cstdint>

#include "core/base/check.h"
#include "trainer/ops/cuda/cuda_ops_impl.h"
#include "trainer/ops/cuda/grouped_products.h"
#include "trainer/ops/cuda/kernel.cuh"

namespace ckpt::trainer {
namespace cuda {
namespace {

constexpr int kTile = 64;      // rows and columns of a tile
constexpr int kDepth = 16;     // of a step of the sum
constexpr int kPerThread = 4;  // rows and columns of a thread's part

// A matrix whose element (i, j) is at data[i · row + j · column].
template <typename T>
struct View {
  const T* data = nullptr;
  std::int64_t row = 0;
  std::int64_t column = 0;

  __device__ float At(std::int64_t i, std::int64_t j) const {
    return Load(data[i * row + j * column]);
  }
};

// Loads [kTile, kDepth] of a matrix, from (first, k), into `tile` [kDepth][kTile]; zeros beyond.
// Threads that follow each other read along the dim that is contiguous.
template <typename T>
__device__ void LoadTile(const View<T>& from, std::int64_t first, std::int64_t rows, std::int64_t k,
                         std::int64_t depth, float (&tile)[kDepth][kTile + 1]) {
  for (int at = threadIdx.x; at < kTile * kDepth; at += kThreads) {
    const int i = from.row == 1 ? at % kTile : at / kDepth;
    const int j = from.row == 1 ? at / kTile : at % kDepth;
    tile[j][i] = first + i < rows && k + j < depth ? from.At(first + i, k + j) : 0;
  }
}

// sums = the thread's part of a [rows, depth] · bᵀ [columns, depth] in the tile at (row, column).
template <typename A, typename B>
__device__ void MultiplyTile(const View<A>& a, std::int64_t row, std::int64_t rows,
                             const View<B>& b, std::int64_t column, std::int64_t columns,
                             std::int64_t depth, float (&sums)[kPerThread][kPerThread]) {
  __shared__ float a_tile[kDepth][kTile + 1];
  __shared__ float b_tile[kDepth][kTile + 1];
  const int part_row = threadIdx.x / (kTile / kPerThread) * kPerThread;
  const int part_column = threadIdx.x % (kTile / kPerThread) * kPerThread;
  for (std::int64_t k = 0; k < depth; k += kDepth) {
    LoadTile(a, row, rows, k, depth, a_tile);
    LoadTile(b, column, columns, k, depth, b_tile);
    __syncthreads();
#pragma unroll
    for (int d = 0; d < kDepth; ++d) {
#pragma unroll
      for (int i = 0; i < kPerThread; ++i) {
#pragma unroll
        for (int j = 0; j < kPerThread; ++j) {
          sums[i][j] += a_tile[d][part_row + i] * b_tile[d][part_column + j];
        }
      }
    }
    __syncthreads();
  }
}

// Calls `write(row in the tile, column in the tile, sum)` for the thread's part.
template <typename Write>
__device__ void ForPart(const float (&sums)[kPerThread][kPerThread], const Write& write) {
  const int part_row = threadIdx.x / (kTile / kPerThread) * kPerThread;
  const int part_column = threadIdx.x % (kTile / kPerThread) * kPerThread;
  for (int i = 0; i < kPerThread; ++i) {
    for (int j = 0; j < kPerThread; ++j) write(part_row + i, part_column + j, sums[i][j]);
  }
}

// to [R, columns] = from [R, depth] · op(weight of the row). Blocks along x are the row tiles of
// all ranges, one after another; those past the last do nothing.
template <bool kTransposed, typename T>
__global__ void __launch_bounds__(kThreads)
    RowProductsKernel(const T* from, const T* weights, const std::int32_t* offsets,
                      std::int64_t num_weights, std::int64_t depth, std::int64_t columns, T* to) {
  AwaitEarlier();
  std::int64_t tile = blockIdx.x;
  std::int64_t weight = 0;
  for (; weight < num_weights; ++weight) {
    const std::int64_t tiles = (offsets[weight + 1] - offsets[weight] + kTile - 1) / kTile;
    if (tile < tiles) break;
    tile -= tiles;
  }
  if (weight == num_weights) return;
  const std::int64_t row = offsets[weight] + tile * kTile;
  const std::int64_t end = offsets[weight + 1];
  const std::int64_t column = static_cast<std::int64_t>(blockIdx.y) * kTile;
  // Stored [O, I]: the forward's columns are O and its depth is I; the backward has them exchanged.
  const T* const matrix = weights + weight * depth * columns;
  const View<T> b = kTransposed ? View<T>{matrix, depth, 1} : View<T>{matrix, 1, columns};
  float sums[kPerThread][kPerThread] = {};
  MultiplyTile(View<T>{from, depth, 1}, row, end, b, column, columns, depth, sums);
  ForPart(sums, [&](int i, int j, float sum) {
    if (row + i < end && column + j < columns) to[(row + i) * columns + column + j] = Store<T>(sum);
  });
}

// dweights[e] [O, I] (=, +=) dy[rows]ᵀ · x[rows].
template <typename T, typename G>
__global__ void __launch_bounds__(kThreads)
    WeightProductsKernel(const T* dy, const T* x, const std::int32_t* offsets, std::int64_t rows,
                         std::int64_t columns, G* dweights, bool adds) {
  AwaitEarlier();
  const std::int64_t weight = blockIdx.z;
  const std::int64_t first = offsets[weight];
  const std::int64_t depth = offsets[weight + 1] - first;
  const std::int64_t row = static_cast<std::int64_t>(blockIdx.x) * kTile;
  const std::int64_t column = static_cast<std::int64_t>(blockIdx.y) * kTile;
  float sums[kPerThread][kPerThread] = {};
  MultiplyTile(View<T>{dy + first * rows, 1, rows}, row, rows,
               View<T>{x + first * columns, 1, columns}, column, columns, depth, sums);
  ForPart(sums, [&](int i, int j, float sum) {
    if (row + i >= rows || column + j >= columns) return;
    WriteGradient(dweights[(weight * rows + row + i) * columns + column + j], sum, adds);
  });
}

void CheckOperands(const Tensor& wide, const Tensor& narrow, const Tensor& weights,
                   const Tensor& offsets, std::int64_t segments) {
  CKPT_CHECK(wide.ndim == 2 && narrow.ndim == 2 && wide.dim(0) == narrow.dim(0));
  CKPT_CHECK(wide.dtype == narrow.dtype && weights.ndim == 3);
  CKPT_CHECK(weights.dim(1) == wide.dim(1) && weights.dim(2) == narrow.dim(1));
  CKPT_CHECK(offsets.dtype == DType::kInt32 && offsets.num_elems() == weights.dim(0) + 1);
  CKPT_CHECK(segments == 1);  // more are for canonical sums, which a GPU does not compute
}

template <bool kTransposed>
void RowProducts(CudaQueue& queue, const Tensor& from, const Tensor& weights, const Tensor& offsets,
                 const Tensor& to) {
  Dispatch(from.dtype, [&](auto tag) {
    using T = typename decltype(tag)::type;
    // Every range may end with a tile that is not full.
    const dim3 blocks(Blocks(to.dim(0), kTile) + static_cast<unsigned int>(weights.dim(0)),
                      Blocks(to.dim(1), kTile));
    Launch(queue.stream(), RowProductsKernel<kTransposed, T>, {blocks, kThreads},
           from.as<const T>(), weights.as<const T>(), offsets.as<const std::int32_t>(),
           weights.dim(0), from.dim(1), to.dim(1), to.as<T>());
  });
}

void WeightProducts(CudaQueue& queue, const Tensor& dy, const Tensor& x, const Tensor& offsets,
                    const Gradient& dweights) {
  const Tensor& to = dweights.tensor;
  Dispatch(x.dtype, [&](auto tag) {
    Dispatch(to.dtype, [&](auto gradient_tag) {
      using T = typename decltype(tag)::type;
      using G = typename decltype(gradient_tag)::type;
      const dim3 blocks(Blocks(to.dim(1), kTile), Blocks(to.dim(2), kTile),
                        static_cast<unsigned int>(to.dim(0)));
      Launch(queue.stream(), WeightProductsKernel<T, G>, {blocks, kThreads}, dy.as<const T>(),
             x.as<const T>(), offsets.as<const std::int32_t>(), to.dim(1), to.dim(2), to.as<G>(),
             dweights.adds());
    });
  });
}

}  // namespace
}  // namespace cuda

void CudaOps::GroupedForward(Queue& queue, const Tensor& x, const Tensor& weights,
                             const Tensor& offsets, std::int64_t segments, const Tensor& y) {
  cuda::CheckOperands(y, x, weights, offsets, segments);
  CKPT_CHECK(weights.dtype == x.dtype);
  if (y.num_elems() == 0) return;
  RunOnCuda(queue, [&](CudaQueue& on) {
    if (cuda::GroupedProductsCover(y, x, weights)) {
      return cuda::GroupedForwardProducts(on, x, weights, offsets, y);
    }
    cuda::RowProducts<true>(on, x, weights, offsets, y);
  });
}

void CudaOps::GroupedBackwardData(Queue& queue, const Tensor& dy, const Tensor& weights,
                                  const Tensor& offsets, std::int64_t segments, const Tensor& dx) {
  cuda::CheckOperands(dy, dx, weights, offsets, segments);
  CKPT_CHECK(weights.dtype == dy.dtype);
  if (dx.num_elems() == 0) return;
  RunOnCuda(queue, [&](CudaQueue& on) {
    if (cuda::GroupedProductsCover(dy, dx, weights)) {
      return cuda::GroupedDataProducts(on, dy, weights, offsets, dx);
    }
    cuda::RowProducts<false>(on, dy, weights, offsets, dx);
  });
}

void CudaOps::GroupedBackwardWeights(Queue& queue, const Tensor& dy, const Tensor& x,
                                     const Tensor& offsets, std::int64_t segments,
                                     const Gradient& dweights) {
  if (!dweights || dweights.tensor.num_elems() == 0) return;
  cuda::CheckOperands(dy, x, dweights.tensor, offsets, segments);
  RunOnCuda(queue, [&](CudaQueue& on) {
    if (cuda::GroupedProductsCover(dy, x, dweights.tensor)) {
      return cuda::GroupedWeightProducts(on, dy, x, offsets, dweights);
    }
    cuda::WeightProducts(on, dy, x, offsets, dweights);
  });
}

}  // namespace ckpt::trainer
