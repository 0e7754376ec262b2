// RMSNorm and LayerNorm over the last dim, with the formulas of the CPU's norm.cc.
//
// A row belongs to a warp, or to a block where it is long. The second read of a row comes from the
// cache. A block walks over many rows in the backward and keeps the sums of dw and db for its rows
// in shared memory, one copy for each row that it works on at a time.
#include <cstdint>

#include "core/base/check.h"
#include "trainer/ops/cuda/cuda_ops_impl.h"
#include "trainer/ops/cuda/kernel.cuh"

namespace ckpt::trainer {
namespace cuda {
namespace {

constexpr std::int64_t kWarpColumns = 1024;  // rows up to this long belong to a warp

struct NormArgs {
  std::int64_t rows = 0;
  std::int64_t columns = 0;
  float eps = 0;
};

// kCentered: LayerNorm, otherwise RMSNorm. kGroup threads work on a row.
template <bool kCentered, int kGroup, int kWidth, typename T>
__global__ void __launch_bounds__(kThreads)
    NormKernel(NormArgs args, const T* x, const T* weight, const T* bias, T* y, float* statistics) {
  const std::int64_t row =
      static_cast<std::int64_t>(blockIdx.x) * (kThreads / kGroup) + threadIdx.x / kGroup;
  if (row >= args.rows) return;  // with kGroup == kThreads, for none or all threads of a block
  const int lane = threadIdx.x % kGroup;
  const std::int64_t packs = args.columns / kWidth;
  const T* const in = x + row * args.columns;
  const auto size = static_cast<float>(args.columns);

  float mean = 0;
  if constexpr (kCentered) {
    for (std::int64_t p = lane; p < packs; p += kGroup) {
      const auto pack = LoadPack<kWidth>(in, p);
#pragma unroll
      for (const T& value : pack.values) mean += Load(value);
    }
    mean = GroupSum<kGroup>(mean) / size;
  }
  float squares = 0;
  for (std::int64_t p = lane; p < packs; p += kGroup) {
    const auto pack = LoadPack<kWidth>(in, p);
#pragma unroll
    for (const T& value : pack.values) {
      const float distance = Load(value) - mean;
      squares += distance * distance;
    }
  }
  const float rstd = 1 / sqrtf(GroupSum<kGroup>(squares) / size + args.eps);
  if (lane == 0) {
    if constexpr (kCentered) {
      statistics[2 * row] = mean;
      statistics[2 * row + 1] = rstd;
    } else {
      statistics[row] = rstd;
    }
  }
  for (std::int64_t p = lane; p < packs; p += kGroup) {
    const auto pack = LoadPack<kWidth>(in, p);
    const auto w = LoadPack<kWidth>(weight, p);
    Pack<T, kWidth> result;
    if constexpr (kCentered) {
      const auto b = LoadPack<kWidth>(bias, p);
#pragma unroll
      for (int i = 0; i < kWidth; ++i) {
        result.values[i] = Store<T>(Load(w.values[i]) * ((Load(pack.values[i]) - mean) * rstd) +
                                    Load(b.values[i]));
      }
    } else {
      // Rounded also before the weight, as Transformers' classes do.
#pragma unroll
      for (int i = 0; i < kWidth; ++i) {
        result.values[i] =
            Store<T>(Load(w.values[i]) * Load(Store<T>(Load(pack.values[i]) * rstd)));
      }
    }
    StorePack(y + row * args.columns, p, result);
  }
}

// dx (=, +=) rstd·(g - mean(g) - x̂·mean(g·x̂)), where mean(g) counts only if kCentered. Partials:
// [kSumBlocks, columns] of dw, and of db after them.
template <bool kCentered, int kGroup, int kWidth, typename T>
__global__ void __launch_bounds__(kThreads)
    NormBackwardKernel(NormArgs args, const T* dy, const T* x, const T* weight,
                       const float* statistics, bool accumulate, T* dx, float* partials) {
  constexpr int kGroups = kThreads / kGroup;
  constexpr int kSums = kCentered ? 2 : 1;
  extern __shared__ float sums[];  // [kGroups, kSums, columns]
  const int lane = threadIdx.x % kGroup;
  const int group = threadIdx.x / kGroup;
  const std::int64_t packs = args.columns / kWidth;
  const auto size = static_cast<float>(args.columns);
  for (std::int64_t i = threadIdx.x; i < kGroups * kSums * args.columns; i += kThreads) sums[i] = 0;
  __syncthreads();
  float* const dw = sums + group * kSums * args.columns;

  // All threads of a block make the same number of turns, because a block may sum together.
  for (std::int64_t first = static_cast<std::int64_t>(blockIdx.x) * kGroups; first < args.rows;
       first += static_cast<std::int64_t>(gridDim.x) * kGroups) {
    const std::int64_t row = first + group;
    if (row >= args.rows) continue;  // whole warps; a block has one group
    const T* const in = x + row * args.columns;
    const T* const dout = dy + row * args.columns;
    const float mean = kCentered ? statistics[2 * row] : 0;
    const float rstd = statistics[kCentered ? 2 * row + 1 : row];
    float sum_g = 0;
    float sum_gx = 0;
    for (std::int64_t p = lane; p < packs; p += kGroup) {
      const auto value = LoadPack<kWidth>(in, p);
      const auto d = LoadPack<kWidth>(dout, p);
      const auto w = LoadPack<kWidth>(weight, p);
#pragma unroll
      for (int i = 0; i < kWidth; ++i) {
        const float normalized = (Load(value.values[i]) - mean) * rstd;
        const float g = Load(w.values[i]) * Load(d.values[i]);
        sum_g += g;
        sum_gx += g * normalized;
        const std::int64_t column = p * kWidth + i;
        dw[column] += Load(d.values[i]) * normalized;
        if constexpr (kCentered) dw[args.columns + column] += Load(d.values[i]);
      }
    }
    const float mean_g = kCentered ? GroupSum<kGroup>(sum_g) / size : 0;
    const float mean_gx = GroupSum<kGroup>(sum_gx) / size;
    for (std::int64_t p = lane; p < packs; p += kGroup) {
      const auto value = LoadPack<kWidth>(in, p);
      const auto d = LoadPack<kWidth>(dout, p);
      const auto w = LoadPack<kWidth>(weight, p);
      Pack<T, kWidth> result;
      if (accumulate) result = LoadPack<kWidth>(dx + row * args.columns, p);
#pragma unroll
      for (int i = 0; i < kWidth; ++i) {
        const float normalized = (Load(value.values[i]) - mean) * rstd;
        const float gradient =
            rstd * (Load(w.values[i]) * Load(d.values[i]) - mean_g - normalized * mean_gx);
        result.values[i] = Store<T>(accumulate ? Load(result.values[i]) + gradient : gradient);
      }
      StorePack(dx + row * args.columns, p, result);
    }
  }

  __syncthreads();
  for (std::int64_t i = threadIdx.x; i < kSums * args.columns; i += kThreads) {
    float total = 0;
    for (int g = 0; g < kGroups; ++g) total += sums[g * kSums * args.columns + i];
    const std::int64_t which = i / args.columns;
    partials[(which * kSumBlocks + blockIdx.x) * args.columns + i % args.columns] = total;
  }
}

template <int kValue>
struct GroupTag {
  static constexpr int kGroup = kValue;
};

template <typename Body>
void DispatchGroup(std::int64_t columns, const Body& body) {
  if (columns <= kWarpColumns) return body(GroupTag<kWarp>{});
  body(GroupTag<kThreads>{});
}

NormArgs ArgsOf(const Tensor& x, const Tensor& weight, const Tensor& statistics,
                std::int64_t num_statistics, double eps) {
  const std::int64_t columns = weight.num_elems();
  CKPT_CHECK(columns > 0 && x.ndim > 0 && x.dim(x.ndim - 1) == columns);
  const NormArgs args{x.num_elems() / columns, columns, static_cast<float>(eps)};
  CKPT_CHECK(weight.dtype == x.dtype && statistics.dtype == DType::kFloat32);
  CKPT_CHECK(statistics.num_elems() == args.rows * num_statistics);
  return args;
}

template <bool kCentered>
void Forward(Queue& queue, const NormArgs& args, const Tensor& x, const Tensor& weight,
             const Tensor& bias, const Tensor& y, const Tensor& statistics) {
  CKPT_CHECK(x.dtype == y.dtype && x.num_elems() == y.num_elems());
  if (args.rows == 0) return;
  RunOnCuda(queue, [&](CudaQueue& on) {
    Dispatch(x.dtype, [&](auto tag) {
      using T = typename decltype(tag)::type;
      DispatchWidth(args.columns, {x.data, weight.data, bias.data, y.data}, [&](auto width) {
        DispatchGroup(args.columns, [&](auto group) {
          constexpr int kGroup = decltype(group)::kGroup;
          constexpr int kWidth = decltype(width)::kWidth;
          NormKernel<kCentered, kGroup, kWidth>
              <<<Blocks(args.rows, kThreads / kGroup), kThreads, 0, on.stream()>>>(
                  args, x.as<const T>(), weight.as<const T>(), bias.as<const T>(), y.as<T>(),
                  statistics.as<float>());
        });
      });
    });
  });
}

template <bool kCentered>
void Backward(Queue& queue, const NormArgs& args, const Tensor& dy, const Tensor& x,
              const Tensor& weight, const Tensor& statistics, bool accumulate, const Tensor& dx,
              const Gradient& dweight, const Gradient& dbias) {
  CKPT_CHECK(x.dtype == dy.dtype && x.num_elems() == dy.num_elems());
  CKPT_CHECK(x.dtype == dx.dtype && x.num_elems() == dx.num_elems());
  RunOnCuda(queue, [&](CudaQueue& on) {
    constexpr int kSums = kCentered ? 2 : 1;
    const std::int64_t partial_elems = kSumBlocks * args.columns;
    auto* const partials = reinterpret_cast<float*>(
        on.Scratch(static_cast<std::uint64_t>(kSums * partial_elems) * sizeof(float)));
    if (partials == nullptr) return;
    Dispatch(x.dtype, [&](auto tag) {
      using T = typename decltype(tag)::type;
      DispatchWidth(args.columns, {dy.data, x.data, weight.data, dx.data}, [&](auto width) {
        DispatchGroup(args.columns, [&](auto group) {
          constexpr int kGroup = decltype(group)::kGroup;
          constexpr int kWidth = decltype(width)::kWidth;
          const auto kernel = NormBackwardKernel<kCentered, kGroup, kWidth, T>;
          const auto shared_bytes = static_cast<std::size_t>(kThreads / kGroup * kSums) *
                                    static_cast<std::size_t>(args.columns) * sizeof(float);
          (void)cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                     static_cast<int>(shared_bytes));
          kernel<<<kSumBlocks, kThreads, shared_bytes, on.stream()>>>(
              args, dy.as<const T>(), x.as<const T>(), weight.as<const T>(),
              statistics.as<const float>(), accumulate, dx.as<T>(), partials);
        });
      });
    });
    if (dweight) WriteColumnSums(on.stream(), partials, dweight);
    if (dbias) WriteColumnSums(on.stream(), partials + partial_elems, dbias);
  });
}

}  // namespace
}  // namespace cuda

void CudaOps::RmsNorm(Queue& queue, const Tensor& x, const Tensor& weight, double eps,
                      const Tensor& y, const Tensor& rstd) {
  cuda::Forward<false>(queue, cuda::ArgsOf(x, weight, rstd, 1, eps), x, weight, {}, y, rstd);
}

void CudaOps::RmsNormBackward(Queue& queue, const Tensor& dy, const Tensor& x, const Tensor& weight,
                              const Tensor& rstd, bool accumulate, const Tensor& dx,
                              const Gradient& dweight) {
  cuda::Backward<false>(queue, cuda::ArgsOf(x, weight, rstd, 1, 0), dy, x, weight, rstd, accumulate,
                        dx, dweight, {});
}

void CudaOps::LayerNorm(Queue& queue, const Tensor& x, const Tensor& weight, const Tensor& bias,
                        double eps, const Tensor& y, const Tensor& statistics) {
  CKPT_CHECK(bias.dtype == weight.dtype && bias.num_elems() == weight.num_elems());
  cuda::Forward<true>(queue, cuda::ArgsOf(x, weight, statistics, 2, eps), x, weight, bias, y,
                      statistics);
}

void CudaOps::LayerNormBackward(Queue& queue, const Tensor& dy, const Tensor& x,
                                const Tensor& weight, const Tensor& statistics, bool accumulate,
                                const Tensor& dx, const Gradient& dweight, const Gradient& dbias) {
  cuda::Backward<true>(queue, cuda::ArgsOf(x, weight, statistics, 2, 0), dy, x, weight, statistics,
                       accumulate, dx, dweight, dbias);
}

}  // namespace ckpt::trainer
