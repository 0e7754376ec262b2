// Moves tokens to rows sorted by expert, and back.
#include <algorithm>
#include <bit>
#include <cstdint>

#include <cub/device/device_radix_sort.cuh>

#include "core/base/check.h"
#include "trainer/ops/cuda/cuda_ops_impl.h"
#include "trainer/ops/cuda/kernel.cuh"
#include "trainer/ops/cuda/routing.cuh"

namespace ckpt::trainer {
namespace cuda {
namespace {

// Arrays of one int32 per choice, and the memory of the sorts, in scratch memory.
class SortScratch {
 public:
  SortScratch(CudaQueue& queue, std::int64_t count, std::uint64_t more_bytes)
      : stride_(AlignedBytes(static_cast<std::uint64_t>(count) * sizeof(std::int32_t))),
        memory_(queue.Scratch(kArrays * stride_ + more_bytes)) {}

  explicit operator bool() const { return memory_ != nullptr; }
  [[nodiscard]] std::int32_t* array(int i) const {
    return reinterpret_cast<std::int32_t*>(memory_ + static_cast<std::uint64_t>(i) * stride_);
  }
  [[nodiscard]] std::byte* more() const { return memory_ + kArrays * stride_; }

  static constexpr std::uint64_t kArrays = 7;

 private:
  const std::uint64_t stride_;
  std::byte* const memory_;
};

// The key of a choice is its expert among those of the form; `num_experts` where it is another.
__global__ void KeysKernel(const std::int32_t* experts, std::int64_t first_expert,
                           std::int32_t num_experts, std::int32_t count, std::int32_t* keys,
                           std::int32_t* choices) {
  const auto i = static_cast<std::int32_t>(blockIdx.x * blockDim.x + threadIdx.x);
  if (i >= count) return;
  const std::int64_t index = experts[i] - first_expert;
  const bool is_ours = experts[i] != kNoExpert && index >= 0 && index < num_experts;
  keys[i] = is_ours ? static_cast<std::int32_t>(index) : num_experts;
  choices[i] = i;
}

// Keys by which heavier choices come first: float bits in descending order, NaN last.
__global__ void WeightKeysKernel(const float* weights, std::int32_t count, std::uint32_t* keys) {
  const auto i = static_cast<std::int32_t>(blockIdx.x * blockDim.x + threadIdx.x);
  if (i >= count) return;
  const float weight = isnan(weights[i]) ? -INFINITY : weights[i] + 0.0F;  // -0 is 0
  const std::uint32_t bits = __float_as_uint(weight);
  const std::uint32_t ascending = (bits & 0x80000000U) != 0 ? ~bits : bits | 0x80000000U;
  keys[i] = ~ascending;
}

__global__ void GatherKeysKernel(const std::int32_t* keys, const std::int32_t* choices,
                                 std::int32_t count, std::int32_t* gathered) {
  const auto i = static_cast<std::int32_t>(blockIdx.x * blockDim.x + threadIdx.x);
  if (i < count) gathered[i] = keys[choices[i]];
}

__device__ std::int32_t LowerBound(const std::int32_t* sorted, std::int32_t count,
                                   std::int32_t key) {
  std::int32_t low = 0;
  while (low < count) {
    const std::int32_t middle = (low + count) / 2;
    if (sorted[middle] < key) {
      low = middle + 1;
    } else {
      count = middle;
    }
  }
  return low;
}

struct SortSizes {
  std::int32_t count = 0;  // choices
  std::int32_t num_experts = 0;
  std::int32_t capacity = 0;  // 0: none
  bool pads = false;
  std::int64_t max_rows = 0;
};

// By one block: the offsets, and what is dropped. Without room for all rows, no expert has any.
__global__ void OffsetsKernel(SortSizes sizes, const std::int32_t* sorted_keys,
                              std::int32_t* begins, std::int32_t* offsets, std::int64_t* dropped,
                              std::int64_t* overflows) {
  extern __shared__ std::int32_t first[];  // begins, where one thread reads them faster
  for (std::int32_t e = threadIdx.x; e <= sizes.num_experts; e += blockDim.x) {
    first[e] = LowerBound(sorted_keys, sizes.count, e);
    begins[e] = first[e];
  }
  __syncthreads();
  if (threadIdx.x != 0) return;
  std::int64_t rows = 0;
  std::int64_t lost = 0;
  for (std::int32_t e = 0; e < sizes.num_experts; ++e) {
    const std::int32_t chosen = first[e + 1] - first[e];
    const std::int32_t kept =
        sizes.capacity > 0 && chosen > sizes.capacity ? sizes.capacity : chosen;
    offsets[e] = static_cast<std::int32_t>(rows);
    rows += sizes.pads ? sizes.capacity : kept;
    lost += chosen - kept;
  }
  offsets[sizes.num_experts] = static_cast<std::int32_t>(rows);
  if (rows > sizes.max_rows) {
    for (std::int32_t e = 0; e <= sizes.num_experts; ++e) offsets[e] = 0;
    if (overflows != nullptr) ++*overflows;
  } else if (dropped != nullptr) {
    *dropped += lost;
  }
}

// kept[choice] = whether it is among the `capacity` heaviest of its expert. `by_weight` are the
// choices by expert, then heaviest first.
__global__ void KeepKernel(SortSizes sizes, const std::int32_t* sorted_keys,
                           const std::int32_t* begins, const std::int32_t* by_weight,
                           std::int32_t* kept) {
  const auto i = static_cast<std::int32_t>(blockIdx.x * blockDim.x + threadIdx.x);
  if (i >= sizes.count) return;
  const std::int32_t expert = sorted_keys[i];
  kept[by_weight[i]] = expert < sizes.num_experts && i - begins[expert] < sizes.capacity ? 1 : 0;
}

// A block gives the choices of one expert their rows, in their order. `kept`: null where the first
// `capacity` are kept.
__global__ void RowsKernel(SortSizes sizes, const std::int32_t* begins,
                           const std::int32_t* by_choice, const std::int32_t* kept,
                           const std::int32_t* offsets, std::int32_t* rows, std::int32_t* choices) {
  __shared__ std::int32_t counts[kThreads / kWarp];
  const std::int32_t expert = blockIdx.x;
  const std::int32_t room = offsets[expert + 1] - offsets[expert];
  const int lane = threadIdx.x % kWarp;
  const int warp = threadIdx.x / kWarp;
  std::int32_t placed = 0;  // by earlier turns
  for (std::int32_t first = begins[expert]; first < begins[expert + 1]; first += kThreads) {
    const auto at = static_cast<std::int32_t>(first + threadIdx.x);
    const bool is_there = at < begins[expert + 1];
    const std::int32_t choice = is_there ? by_choice[at] : 0;
    const bool is_kept = is_there && (kept == nullptr || kept[choice] != 0);
    const unsigned int of_warp = __ballot_sync(0xFFFFFFFFU, is_kept);
    if (lane == 0) counts[warp] = __popc(of_warp);
    __syncthreads();
    std::int32_t row = placed + __popc(of_warp & ((1U << lane) - 1));
    for (int w = 0; w < kThreads / kWarp; ++w) {
      if (w < warp) row += counts[w];
      placed += counts[w];
    }
    if (is_kept && row < room) {
      rows[choice] = offsets[expert] + row;
      choices[offsets[expert] + row] = choice;
    }
    __syncthreads();
  }
  // Padding belongs to no choice.
  for (std::int32_t row = min(placed, room) + threadIdx.x; row < room; row += kThreads) {
    choices[offsets[expert] + row] = -1;
  }
}

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

void CudaOps::SortByExpert(Queue& queue, const SortForm& form, const Tensor& experts,
                           const Tensor& weights, const ExpertRows& sorted, const Tensor& dropped,
                           const Tensor& overflows) {
  CKPT_CHECK(sorted.rows.num_elems() == experts.num_elems());
  CKPT_CHECK(sorted.offsets.num_elems() == form.num_experts + 1);
  CKPT_CHECK(form.capacity >= 0 && (!form.pad || form.capacity > 0));
  const bool is_weighed = form.capacity > 0 && form.policy == DropPolicy::kProbability;
  CKPT_CHECK(!is_weighed || weights.num_elems() == experts.num_elems());
  const cuda::SortSizes sizes = {.count = static_cast<std::int32_t>(experts.num_elems()),
                                 .num_experts = static_cast<std::int32_t>(form.num_experts),
                                 .capacity = static_cast<std::int32_t>(form.capacity),
                                 .pads = form.pad,
                                 .max_rows = sorted.choices.num_elems()};
  RunOnCuda(queue, [&](CudaQueue& on) {
    const cudaStream_t stream = on.stream();
    const auto begin_bytes =
        static_cast<std::uint64_t>(form.num_experts + 1) * sizeof(std::int32_t);
    std::size_t sort_bytes = 0;
    const auto sort = [&](void* memory, const auto* keys, auto* sorted_keys,
                          const std::int32_t* values, std::int32_t* sorted_values, int bits) {
      (void)cub::DeviceRadixSort::SortPairs(memory, sort_bytes, keys, sorted_keys, values,
                                            sorted_values, sizes.count, 0, bits, stream);
    };
    // A pass of a sort takes 8 bits. Keys are experts, or all bits of a weight.
    constexpr int kWeightBits = 32;
    const int key_bits = std::bit_width(static_cast<std::uint32_t>(sizes.num_experts));
    std::int32_t* const none = nullptr;
    sort(nullptr, none, none, none, none, kWeightBits);
    const cuda::SortScratch scratch(on, sizes.count, cuda::AlignedBytes(begin_bytes) + sort_bytes);
    if (!scratch) return;
    auto* const begins = reinterpret_cast<std::int32_t*>(scratch.more());
    std::byte* const sort_memory = scratch.more() + cuda::AlignedBytes(begin_bytes);
    std::int32_t* const keys = scratch.array(0);
    std::int32_t* const order = scratch.array(1);
    std::int32_t* const sorted_keys = scratch.array(2);
    std::int32_t* const by_choice = scratch.array(3);
    std::int32_t* kept = nullptr;

    const unsigned int blocks = cuda::Blocks(std::max(sizes.count, 1), cuda::kThreads);
    cuda::KeysKernel<<<blocks, cuda::kThreads, 0, stream>>>(experts.as<const std::int32_t>(),
                                                            form.first_expert, sizes.num_experts,
                                                            sizes.count, keys, order);
    if (sizes.count > 0) sort(sort_memory, keys, sorted_keys, order, by_choice, key_bits);
    cuda::OffsetsKernel<<<1, cuda::kThreads, begin_bytes, stream>>>(
        sizes, sorted_keys, begins, sorted.offsets.as<std::int32_t>(), dropped.as<std::int64_t>(),
        overflows.as<std::int64_t>());
    if (is_weighed && sizes.count > 0) {
      // Heaviest first; that order within each expert, because the second sort is stable.
      auto* const weight_keys = reinterpret_cast<std::uint32_t*>(scratch.array(4));
      auto* const sorted_weights = reinterpret_cast<std::uint32_t*>(scratch.array(5));
      std::int32_t* const by_weight = scratch.array(6);
      cuda::WeightKeysKernel<<<blocks, cuda::kThreads, 0, stream>>>(weights.as<const float>(),
                                                                    sizes.count, weight_keys);
      sort(sort_memory, weight_keys, sorted_weights, order, by_weight, kWeightBits);
      std::int32_t* const keys_by_weight = scratch.array(4);
      cuda::GatherKeysKernel<<<blocks, cuda::kThreads, 0, stream>>>(keys, by_weight, sizes.count,
                                                                    keys_by_weight);
      sort(sort_memory, keys_by_weight, sorted_keys, by_weight, order, key_bits);
      kept = scratch.array(5);
      cuda::KeepKernel<<<blocks, cuda::kThreads, 0, stream>>>(sizes, sorted_keys, begins, order,
                                                              kept);
    }
    (void)cudaMemsetAsync(sorted.rows.data, 0xFF, sorted.rows.size_bytes(), stream);
    cuda::RowsKernel<<<static_cast<unsigned int>(sizes.num_experts), cuda::kThreads, 0, stream>>>(
        sizes, begins, by_choice, kept, sorted.offsets.as<const std::int32_t>(),
        sorted.rows.as<std::int32_t>(), sorted.choices.as<std::int32_t>());
  });
}

void CudaOps::Permute(Queue& queue, const ExpertRows& sorted, const Tensor& x,
                      const Tensor& weights, const Tensor& y, const Tensor& row_weights) {
  CKPT_CHECK(x.dtype == y.dtype && x.ndim == 2 && y.ndim == 2 && x.dim(1) == y.dim(1));
  CKPT_CHECK(static_cast<bool>(weights) == static_cast<bool>(row_weights));
  CKPT_CHECK(x.dim(0) == sorted.rows.dim(0));
  if (y.num_elems() == 0) return;
  RunOnCuda(queue, [&](CudaQueue& on) {
    cuda::Dispatch(y.dtype, [&](auto tag) {
      using T = typename decltype(tag)::type;
      cuda::DispatchWidth(y.dim(1), {x.data, y.data}, [&](auto width) {
        constexpr int kWidth = decltype(width)::kWidth;
        const std::int64_t tokens = sorted.rows.dim(0);
        const auto blocks =
            static_cast<unsigned int>(tokens) + cuda::Blocks(y.dim(0), cuda::kMoveThreads);
        cuda::PermuteKernel<kWidth><<<blocks, cuda::kMoveThreads, 0, on.stream()>>>(
            sorted.rows.as<const std::int32_t>(), sorted.choices.as<const std::int32_t>(),
            sorted.count().as<const std::int32_t>(), tokens, static_cast<int>(sorted.rows.dim(1)),
            x.as<const T>(), weights.as<const float>(), y.dim(1) / kWidth, y.as<T>(),
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
        cuda::UnpermuteKernel<kWidth>
            <<<static_cast<unsigned int>(y.dim(0)), cuda::kMoveThreads, 0, on.stream()>>>(
                sorted.rows.as<const std::int32_t>(), static_cast<int>(sorted.rows.dim(1)),
                x.as<const T>(), row_weights.as<const float>(), y.dim(1) / kWidth, y.as<T>(),
                weights.as<float>());
      });
    });
  });
}

}  // namespace ckpt::trainer
