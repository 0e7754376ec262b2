// Fills, casts, sums and biases.
#include <algorithm>
#include <cstdint>
#include <initializer_list>

#include "core/base/check.h"
#include "trainer/ops/cuda/cuda_ops_impl.h"
#include "trainer/ops/cuda/kernel.cuh"

namespace ckpt::trainer {
namespace cuda {
namespace {

template <typename T>
__global__ void FillKernel(T* to, std::int64_t elems, T value) {
  AwaitEarlier();
  const std::int64_t i = static_cast<std::int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
  if (i < elems) to[i] = value;
}

template <typename T>
void FillWith(cudaStream_t stream, const Tensor& x, T value) {
  const std::int64_t elems = x.num_elems();
  if (elems == 0) return;
  Launch(stream, FillKernel<T>, {Blocks(elems, kThreads), kThreads}, x.as<T>(), elems, value);
}

struct Constant {
  float value = 0;
  __device__ float operator()() const { return value; }
};
struct Same {
  __device__ float operator()(float x) const { return x; }
};
struct Sum {
  __device__ float operator()(float x, float y) const { return x + y; }
};

// x [rows, columns] += bias [columns].
template <int kWidth, typename T>
__global__ void AddBiasKernel(T* x, const T* bias, std::int64_t packs, std::int64_t row_packs) {
  AwaitEarlier();
  const std::int64_t pack = static_cast<std::int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
  if (pack >= packs) return;
  auto values = LoadPack<kWidth>(x, pack);
  const auto add = LoadPack<kWidth>(bias, pack % row_packs);
#pragma unroll
  for (int i = 0; i < kWidth; ++i) {
    values.values[i] = Store<T>(Load(values.values[i]) + Load(add.values[i]));
  }
  StorePack(x, pack, values);
}

// partials [gridDim.x, columns] = Σ of every gridDim.x-th row of x. A thread sums one column.
template <typename T>
__global__ void SumRowsKernel(const T* x, std::int64_t rows, std::int64_t columns,
                              float* partials) {
  AwaitEarlier();
  for (std::int64_t column = threadIdx.x; column < columns; column += blockDim.x) {
    float sum = 0;
    for (std::int64_t row = blockIdx.x; row < rows; row += gridDim.x) {
      sum += Load(x[row * columns + column]);
    }
    partials[blockIdx.x * columns + column] = sum;
  }
}

// Of a block: as many columns as memory hands out at once, and so many rows of threads that each
// has few of the partial sums, all of which it asks for before it waits.
constexpr int kSumColumns = 8;
constexpr int kSumRows = 128;

template <typename T>
struct ColumnSums {
  T* to = nullptr;  // null: left out
  bool adds = false;
};
template <typename T>
struct AllColumnSums {
  ColumnSums<T> of[kMostColumnSums];
};

// A block adds up kSumColumns columns of one of the sums; its rows of threads share the partials.
template <typename T>
__global__ void __launch_bounds__(kSumColumns* kSumRows)
    ColumnSumsKernel(const float* partials, int num_parts, std::int64_t columns,
                     AllColumnSums<T> all) {
  AwaitEarlier();
  const ColumnSums<T> mine = all.of[blockIdx.y];
  if (mine.to == nullptr) return;
  partials += static_cast<std::int64_t>(blockIdx.y) * num_parts * columns;
  constexpr int kRowsOfWarp = kWarp / kSumColumns;
  __shared__ float sums[kSumRows / kRowsOfWarp][kSumColumns];
  const std::int64_t column = static_cast<std::int64_t>(blockIdx.x) * kSumColumns + threadIdx.x;
  float sum = 0;
  if (column < columns) {
#pragma unroll 4
    for (int part = static_cast<int>(threadIdx.y); part < num_parts; part += kSumRows) {
      sum += partials[part * columns + column];
    }
  }
#pragma unroll
  for (int distance = kSumColumns; distance < kWarp; distance *= 2) {
    sum += __shfl_xor_sync(0xFFFFFFFFU, sum, distance);
  }
  if (threadIdx.y % kRowsOfWarp == 0) sums[threadIdx.y / kRowsOfWarp][threadIdx.x] = sum;
  __syncthreads();
  if (threadIdx.y != 0 || column >= columns) return;
  float total = 0;
#pragma unroll
  for (const auto& row : sums) total += row[threadIdx.x];
  WriteGradient(mine.to[column], total, mine.adds);
}

}  // namespace

void WriteColumnSums(cudaStream_t stream, const float* partials, int num_parts,
                     std::initializer_list<Gradient> gradients) {
  CKPT_CHECK(gradients.size() <= kMostColumnSums);
  const auto* const present = std::find_if(gradients.begin(), gradients.end(),
                                           [](const Gradient& g) { return static_cast<bool>(g); });
  if (present == gradients.end() || present->tensor.num_elems() == 0) return;
  const std::int64_t columns = present->tensor.num_elems();
  Dispatch(present->tensor.dtype, [&](auto tag) {
    using T = typename decltype(tag)::type;
    AllColumnSums<T> all;
    int count = 0;
    for (const Gradient& gradient : gradients) {
      CKPT_CHECK(!gradient || (gradient.tensor.dtype == present->tensor.dtype &&
                               gradient.tensor.num_elems() == columns));
      if (gradient) all.of[count] = {gradient.tensor.as<T>(), gradient.adds()};
      ++count;
    }
    const dim3 blocks(Blocks(columns, kSumColumns), static_cast<unsigned int>(count));
    const dim3 threads(kSumColumns, kSumRows);
    Launch(stream, ColumnSumsKernel<T>, {blocks, threads}, partials, num_parts, columns, all);
  });
}

}  // namespace cuda

using namespace cuda;  // NOLINT(google-build-using-namespace): this file's own kernels

void CudaOps::Fill(Queue& queue, const Tensor& x, double value) {
  RunOnCuda(queue, [&](CudaQueue& on) {
    switch (x.dtype) {
      case DType::kInt32:
        return FillWith(on.stream(), x, static_cast<std::int32_t>(value));
      case DType::kInt64:
        return FillWith(on.stream(), x, static_cast<std::int64_t>(value));
      case DType::kFloat64:
        return FillWith(on.stream(), x, value);
      default:
        break;
    }
    Dispatch(x.dtype, [&](auto tag) {
      using T = typename decltype(tag)::type;
      Map(on.stream(), x.num_elems(), x.as<T>(), Constant{static_cast<float>(value)});
    });
  });
}

void CudaOps::Cast(Queue& queue, const Tensor& from, const Tensor& to) {
  CKPT_CHECK(from.num_elems() == to.num_elems());
  RunOnCuda(queue, [&](CudaQueue& on) {
    Dispatch(from.dtype, [&](auto from_tag) {
      Dispatch(to.dtype, [&](auto to_tag) {
        using From = typename decltype(from_tag)::type;
        using To = typename decltype(to_tag)::type;
        Map(on.stream(), to.num_elems(), to.as<To>(), Same{}, from.as<const From>());
      });
    });
  });
}

void CudaOps::Accumulate(Queue& queue, const Tensor& from, const Tensor& to) {
  CKPT_CHECK(from.num_elems() == to.num_elems());
  RunOnCuda(queue, [&](CudaQueue& on) {
    Dispatch(from.dtype, [&](auto from_tag) {
      Dispatch(to.dtype, [&](auto to_tag) {
        using From = typename decltype(from_tag)::type;
        using To = typename decltype(to_tag)::type;
        Map(on.stream(), to.num_elems(), to.as<To>(), Sum{}, to.as<const To>(),
            from.as<const From>());
      });
    });
  });
}

void CudaOps::Add(Queue& queue, const Tensor& a, const Tensor& b, const Tensor& out) {
  CKPT_CHECK(a.dtype == b.dtype && a.dtype == out.dtype);
  CKPT_CHECK(a.num_elems() == b.num_elems() && a.num_elems() == out.num_elems());
  RunOnCuda(queue, [&](CudaQueue& on) {
    Dispatch(out.dtype, [&](auto tag) {
      using T = typename decltype(tag)::type;
      Map(on.stream(), out.num_elems(), out.as<T>(), Sum{}, a.as<const T>(), b.as<const T>());
    });
  });
}

void CudaOps::AddBias(Queue& queue, const Tensor& x, const Tensor& bias) {
  const std::int64_t columns = bias.num_elems();
  CKPT_CHECK(x.dtype == bias.dtype && x.ndim > 0 && x.dim(x.ndim - 1) == columns);
  if (x.num_elems() == 0) return;
  RunOnCuda(queue, [&](CudaQueue& on) {
    Dispatch(x.dtype, [&](auto tag) {
      using T = typename decltype(tag)::type;
      DispatchWidth(columns, {x.data, bias.data}, [&](auto width) {
        constexpr int kWidth = decltype(width)::kWidth;
        const std::int64_t packs = x.num_elems() / kWidth;
        Launch(on.stream(), AddBiasKernel<kWidth, T>, {Blocks(packs, kThreads), kThreads},
               x.as<T>(), bias.as<const T>(), packs, columns / kWidth);
      });
    });
  });
}

void CudaOps::BiasBackward(Queue& queue, const Tensor& dy, const Gradient& dbias) {
  if (!dbias) return;
  const std::int64_t columns = dbias.tensor.num_elems();
  CKPT_CHECK(dy.ndim > 0 && dy.dim(dy.ndim - 1) == columns);
  RunOnCuda(queue, [&](CudaQueue& on) {
    auto* const partials = reinterpret_cast<float*>(
        on.Scratch(static_cast<std::uint64_t>(kSumBlocks * columns) * sizeof(float)));
    if (partials == nullptr || columns == 0) return;
    Dispatch(dy.dtype, [&](auto tag) {
      using T = typename decltype(tag)::type;
      Launch(on.stream(), SumRowsKernel<T>, {kSumBlocks, kThreads}, dy.as<const T>(),
             dy.num_elems() / columns, columns, partials);
    });
    WriteColumnSums(on.stream(), partials, kSumBlocks, {dbias});
  });
}

}  // namespace ckpt::trainer
