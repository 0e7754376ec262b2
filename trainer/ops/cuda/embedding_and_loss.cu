// The first and the last operation of a model: embedding, and cross entropy of logits.
#include <cstdint>

#include <cub/device/device_radix_sort.cuh>

#include "core/base/check.h"
#include "trainer/ops/cuda/cuda_ops_impl.h"
#include "trainer/ops/cuda/kernel.cuh"

namespace ckpt::trainer {
namespace cuda {
namespace {

// A block copies the row of one token.
template <int kWidth, typename T>
__global__ void EmbeddingKernel(const std::int32_t* tokens, const T* table, std::int64_t vocab,
                                std::int64_t packs, T* y) {
  AwaitEarlier();
  const std::int64_t token = tokens[blockIdx.x];
  if (token < 0 || token >= vocab) __trap();
  for (std::int64_t p = threadIdx.x; p < packs; p += blockDim.x) {
    StorePack(y, blockIdx.x * packs + p, LoadPack<kWidth>(table, token * packs + p));
  }
}

__global__ void CountUpKernel(std::int32_t* values, std::int32_t count) {
  AwaitEarlier();
  const std::int32_t i = static_cast<std::int32_t>(blockIdx.x * blockDim.x + threadIdx.x);
  if (i < count) values[i] = i;
}

// A block for each place among the sorted tokens. The first place of a token sums all rows of that
// token, in the order of the tokens, and rounds once.
template <typename T, typename G>
__global__ void EmbeddingBackwardKernel(const std::int32_t* sorted_tokens,
                                        const std::int32_t* positions, std::int64_t num_tokens,
                                        const T* dy, std::int64_t hidden, G* dtable, bool adds) {
  AwaitEarlier();
  const std::int64_t first = blockIdx.x;
  const std::int32_t token = sorted_tokens[first];
  if (first > 0 && sorted_tokens[first - 1] == token) return;
  for (std::int64_t column = threadIdx.x; column < hidden; column += blockDim.x) {
    float sum = 0;
    for (std::int64_t i = first; i < num_tokens && sorted_tokens[i] == token; ++i) {
      sum += Load(dy[positions[i] * hidden + column]);
    }
    WriteGradient(dtable[token * hidden + column], sum, adds);
  }
}

// e^x, where results below the normal floats are 0: __expf spends more instructions on those than
// on all others, and a softmax over a vocabulary is bound by its instructions.
__device__ __forceinline__ float Exp(float x) {
  constexpr float kLog2E = 1.44269504F;
  float result = 0;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(result) : "f"(x * kLog2E));
  return result;
}

// The largest of some numbers, and the sum of exp(number - largest). A NaN among the numbers makes
// the sum NaN: fmaxf drops it, the sum keeps it.
struct SoftmaxSum {
  float largest = -INFINITY;
  float sum = 0;

  template <typename T, int kWidth>
  __device__ __forceinline__ void Add(const Pack<T, kWidth>& numbers) {
    float values[kWidth];
    Unpack(numbers, values);
    float of_pack = largest;
#pragma unroll
    for (const float value : values) of_pack = fmaxf(of_pack, value);
    Raise(of_pack);
    const float from = Origin();
#pragma unroll
    for (const float value : values) sum += Exp(value - from);
  }

  __device__ void Add(const SoftmaxSum& other) {
    Raise(fmaxf(largest, other.largest));
    sum += other.largest == -INFINITY ? other.sum : other.sum * Exp(other.largest - Origin());
  }

 private:
  // What is subtracted from every number. With none but -∞ and NaN there is nothing to scale by.
  [[nodiscard]] __device__ __forceinline__ float Origin() const {
    return largest == -INFINITY ? 0 : largest;
  }
  __device__ __forceinline__ void Raise(float to) {
    if (to <= largest) return;
    if (largest != -INFINITY) sum *= Exp(largest - to);
    largest = to;
  }
};

// The sum over a warp; every thread gets it.
__device__ __forceinline__ SoftmaxSum WarpTotal(SoftmaxSum mine) {
#pragma unroll
  for (int distance = kWarp / 2; distance > 0; distance /= 2) {
    SoftmaxSum other;
    other.largest = __shfl_xor_sync(0xFFFFFFFFU, mine.largest, distance);
    other.sum = __shfl_xor_sync(0xFFFFFFFFU, mine.sum, distance);
    mine.Add(other);
  }
  return mine;
}

constexpr int kLossThreads = 128;
constexpr int kLossWarps = kLossThreads / kWarp;
constexpr int kLossPacks = 4;  // that a thread reads at once

// A block for each token.
template <int kWidth, typename T>
__global__ void __launch_bounds__(kLossThreads)
    CrossEntropyKernel(const T* logits, std::int64_t columns, const std::int32_t* labels,
                       float* losses, float* lse) {
  AwaitEarlier();
  const std::int64_t token = blockIdx.x;
  const T* const row = logits + token * columns;
  const std::int32_t label = labels[token];
  SoftmaxSum mine;
  // Several packs are on their way at once.
  const std::int64_t packs = columns / kWidth;
  for (std::int64_t first = threadIdx.x; first < packs; first += kLossThreads * kLossPacks) {
    Pack<T, kWidth> loaded[kLossPacks];
#pragma unroll
    for (int j = 0; j < kLossPacks; ++j) {
      const std::int64_t p = first + j * kLossThreads;
      loaded[j] = LoadPack<kWidth>(row, p < packs ? p : first);
    }
#pragma unroll
    for (int j = 0; j < kLossPacks; ++j) {
      if (first + j * kLossThreads < packs) mine.Add(loaded[j]);
    }
  }
  __shared__ SoftmaxSum sums[kLossWarps];
  const SoftmaxSum of_warp = WarpTotal(mine);
  const unsigned int lane = threadIdx.x % kWarp;
  if (lane == 0) sums[threadIdx.x / kWarp] = of_warp;
  __syncthreads();
  if (threadIdx.x >= kWarp) return;
  if (label >= columns) __trap();
  const float logit = label < 0 ? 0 : Load(row[label]);
  const SoftmaxSum all = WarpTotal(lane < kLossWarps ? sums[lane] : SoftmaxSum());
  if (lane != 0) return;
  // In double, because the loss is the small difference between this logarithm and a logit.
  const double log_sum = static_cast<double>(all.largest) + log(static_cast<double>(all.sum));
  lse[token] = static_cast<float>(log_sum);
  losses[token] = label < 0 ? 0 : static_cast<float>(log_sum - logit);
}

template <int kWidth, typename T>
__global__ void __launch_bounds__(kLossThreads)
    CrossEntropyBackwardKernel(const T* logits, std::int64_t columns, const std::int32_t* labels,
                               const float* lse, const float* token_weights, T* dlogits) {
  AwaitEarlier();
  const std::int64_t token = blockIdx.x;
  const std::int32_t label = labels[token];
  if (label >= columns) __trap();
  const float weight = label < 0 ? 0 : token_weights[token];
  const float log_sum = lse[token];
  for (std::int64_t p = threadIdx.x; p * kWidth < columns; p += kLossThreads) {
    float values[kWidth];
    Unpack(LoadPack<kWidth>(logits + token * columns, p), values);
#pragma unroll
    for (int i = 0; i < kWidth; ++i) {
      const std::int64_t column = p * kWidth + i;
      const float hit = column == label ? 1 : 0;
      values[i] = label >= 0 ? weight * (Exp(values[i] - log_sum) - hit) : 0;
    }
    StorePack(dlogits + token * columns, p, Packed<T>(values));
  }
}

void CheckLogits(const Tensor& logits, const Tensor& labels, const Tensor& lse) {
  CKPT_CHECK(logits.ndim == 2 && labels.dtype == DType::kInt32);
  CKPT_CHECK(logits.dim(1) > 0 && labels.num_elems() == logits.dim(0));
  CKPT_CHECK(lse.dtype == DType::kFloat32 && lse.num_elems() == logits.dim(0));
}

}  // namespace
}  // namespace cuda

void CudaOps::Embedding(Queue& queue, const Tensor& tokens, const Tensor& table, const Tensor& y) {
  CKPT_CHECK(tokens.dtype == DType::kInt32 && table.ndim == 2 && table.dtype == y.dtype);
  CKPT_CHECK(y.num_elems() == tokens.num_elems() * table.dim(1));
  if (y.num_elems() == 0) return;
  RunOnCuda(queue, [&](CudaQueue& on) {
    cuda::Dispatch(y.dtype, [&](auto tag) {
      using T = typename decltype(tag)::type;
      cuda::DispatchWidth(table.dim(1), {table.data, y.data}, [&](auto width) {
        constexpr int kWidth = decltype(width)::kWidth;
        cuda::Launch(on.stream(), cuda::EmbeddingKernel<kWidth, T>,
                     {static_cast<unsigned int>(tokens.num_elems()), 128},
                     tokens.as<const std::int32_t>(), table.as<const T>(), table.dim(0),
                     table.dim(1) / kWidth, y.as<T>());
      });
    });
  });
}

void CudaOps::EmbeddingBackward(Queue& queue, const Tensor& tokens, const Tensor& dy,
                                const Gradient& dtable) {
  if (!dtable) return;
  const Tensor& table = dtable.tensor;
  CKPT_CHECK(tokens.dtype == DType::kInt32 && table.ndim == 2);
  CKPT_CHECK(dy.num_elems() == tokens.num_elems() * table.dim(1));
  const auto count = static_cast<std::int32_t>(tokens.num_elems());
  RunOnCuda(queue, [&](CudaQueue& on) {
    if (!dtable.adds()) (void)cudaMemsetAsync(table.data, 0, table.size_bytes(), on.stream());
    if (count == 0) return;
    // Sorted tokens, positions as they were and sorted, then the sort's own memory.
    const std::uint64_t list_bytes =
        cuda::AlignedBytes(static_cast<std::uint64_t>(count) * sizeof(std::int32_t));
    std::size_t sort_bytes = 0;
    const auto* const ids = tokens.as<const std::int32_t>();
    (void)cub::DeviceRadixSort::SortPairs(
        nullptr, sort_bytes, ids, static_cast<std::int32_t*>(nullptr),
        static_cast<const std::int32_t*>(nullptr), static_cast<std::int32_t*>(nullptr), count);
    std::byte* const scratch = on.Scratch(3 * list_bytes + sort_bytes);
    if (scratch == nullptr) return;
    auto* const sorted = reinterpret_cast<std::int32_t*>(scratch);
    auto* const places = reinterpret_cast<std::int32_t*>(scratch + list_bytes);
    auto* const positions = reinterpret_cast<std::int32_t*>(scratch + 2 * list_bytes);
    cuda::Launch(on.stream(), cuda::CountUpKernel,
                 {cuda::Blocks(count, cuda::kThreads), cuda::kThreads}, places, count);
    // Stable, so the rows of a token stay in their order.
    (void)cub::DeviceRadixSort::SortPairs(scratch + 3 * list_bytes, sort_bytes, ids, sorted, places,
                                          positions, count, 0, 32, on.stream());
    cuda::Dispatch(dy.dtype, [&](auto tag) {
      cuda::Dispatch(table.dtype, [&](auto gradient_tag) {
        using T = typename decltype(tag)::type;
        using G = typename decltype(gradient_tag)::type;
        cuda::Launch(on.stream(), cuda::EmbeddingBackwardKernel<T, G>,
                     {static_cast<unsigned int>(count), cuda::kThreads}, sorted, positions, count,
                     dy.as<const T>(), table.dim(1), table.as<G>(), dtable.adds());
      });
    });
  });
}

void CudaOps::CrossEntropy(Queue& queue, const Tensor& logits, const Tensor& labels,
                           const Tensor& losses, const Tensor& lse) {
  cuda::CheckLogits(logits, labels, lse);
  if (logits.num_elems() == 0) return;
  RunOnCuda(queue, [&](CudaQueue& on) {
    cuda::Dispatch(logits.dtype, [&](auto tag) {
      using T = typename decltype(tag)::type;
      cuda::DispatchWidth(logits.dim(1), {logits.data}, [&](auto width) {
        constexpr int kWidth = decltype(width)::kWidth;
        cuda::Launch(on.stream(), cuda::CrossEntropyKernel<kWidth, T>,
                     {static_cast<unsigned int>(logits.dim(0)), cuda::kLossThreads},
                     logits.as<const T>(), logits.dim(1), labels.as<const std::int32_t>(),
                     losses.as<float>(), lse.as<float>());
      });
    });
  });
}

void CudaOps::CrossEntropyBackward(Queue& queue, const Tensor& logits, const Tensor& labels,
                                   const Tensor& lse, const Tensor& token_weights,
                                   const Tensor& dlogits) {
  cuda::CheckLogits(logits, labels, lse);
  CKPT_CHECK(dlogits.dtype == logits.dtype && dlogits.num_elems() == logits.num_elems());
  if (logits.num_elems() == 0) return;
  RunOnCuda(queue, [&](CudaQueue& on) {
    cuda::Dispatch(logits.dtype, [&](auto tag) {
      using T = typename decltype(tag)::type;
      cuda::DispatchWidth(logits.dim(1), {logits.data, dlogits.data}, [&](auto width) {
        constexpr int kWidth = decltype(width)::kWidth;
        cuda::Launch(on.stream(), cuda::CrossEntropyBackwardKernel<kWidth, T>,
                     {static_cast<unsigned int>(logits.dim(0)), cuda::kLossThreads},
                     logits.as<const T>(), logits.dim(1), labels.as<const std::int32_t>(),
                     lse.as<const float>(), token_weights.as<const float>(), dlogits.as<T>());
      });
    });
  });
}

}  // namespace ckpt::trainer
