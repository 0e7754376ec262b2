// Gives choices of experts rows sorted by expert.
//
// Choices are counted and placed in chunks, one for each block: how many of an expert's choices
// earlier chunks have is where those of a chunk begin. So the order is that of the choices, and no
// sort is needed, except by weight where a capacity keeps the heaviest.
#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <optional>

#include <cub/device/device_radix_sort.cuh>

#include "core/base/check.h"
#include "trainer/ops/cuda/cuda_ops_impl.h"
#include "trainer/ops/cuda/kernel.cuh"
#include "trainer/ops/cuda/routing.cuh"

namespace ckpt::trainer {
namespace cuda {
namespace {

constexpr int kWarps = kThreads / kWarp;
constexpr std::int32_t kOfWarp = 4 * kWarp;        // choices
constexpr std::int32_t kChunk = kWarps * kOfWarp;  // choices of a block
constexpr int kOffsetThreads = 1024;

struct SortSizes {
  std::int32_t count = 0;  // choices
  std::int64_t first_expert = 0;
  std::int32_t num_experts = 0;
  std::int32_t chunks = 0;
  std::int32_t capacity = 0;  // 0: none
  bool pads = false;
  std::int64_t max_rows = 0;

  // The expert of a choice among those of the form; `num_experts` where it is another.
  [[nodiscard]] __device__ std::int32_t KeyOf(const std::int32_t* experts, std::int32_t i) const {
    const std::int64_t index = experts[i] - first_expert;
    const bool is_ours = experts[i] != kNoExpert && index >= 0 && index < num_experts;
    return is_ours ? static_cast<std::int32_t>(index) : num_experts;
  }
  // The rows of an expert that `chosen` choices want.
  [[nodiscard]] __device__ std::int32_t Kept(std::int32_t chosen) const {
    return capacity > 0 && chosen > capacity ? capacity : chosen;
  }
};

// Which choices have a row: all, or those for which `kept` is not 0.
struct Choices {
  const std::int32_t* experts = nullptr;
  const std::int32_t* kept = nullptr;

  // `num_experts` also for a choice that is not kept, or past the last one.
  [[nodiscard]] __device__ std::int32_t KeyOf(const SortSizes& sizes, std::int32_t i) const {
    if (i >= sizes.count || (kept != nullptr && kept[i] == 0)) return sizes.num_experts;
    return sizes.KeyOf(experts, i);
  }
};

// In scratch memory.
struct Tables {
  // [E, chunks]: an expert's choices in a chunk, later in all chunks before it
  std::int32_t* before;
  std::int32_t* chosen;  // [E]: its choices
  std::int32_t* begins;  // [E + 1]: where they begin among those of all experts
};

// The choices of a chunk that a warp works on, one turn of the loop for each 32 of them.
template <typename Body>
__device__ void ForChoicesOfWarp(const Body& body) {
  const std::int32_t first = static_cast<std::int32_t>(blockIdx.x) * kChunk +
                             static_cast<std::int32_t>(threadIdx.x) / kWarp * kOfWarp;
  for (std::int32_t i = 0; i < kOfWarp; i += kWarp) {
    body(first + i + static_cast<std::int32_t>(threadIdx.x) % kWarp);
  }
}

__global__ void CountChoicesKernel(SortSizes sizes, Choices choices, Tables tables) {
  AwaitEarlier();
  extern __shared__ std::int32_t counts[];  // [E]
  for (std::int32_t e = threadIdx.x; e < sizes.num_experts; e += kThreads) counts[e] = 0;
  __syncthreads();
  ForChoicesOfWarp([&](std::int32_t i) {
    const std::int32_t key = choices.KeyOf(sizes, i);
    if (key < sizes.num_experts) atomicAdd(&counts[key], 1);
  });
  __syncthreads();
  for (std::int32_t e = threadIdx.x; e < sizes.num_experts; e += kThreads) {
    tables.before[e * sizes.chunks + blockIdx.x] = counts[e];
  }
}

// The sum of this lane's value and those of all lower lanes.
template <typename Int>
__device__ Int SumUpTo(Int value) {
  const int lane = threadIdx.x % kWarp;
#pragma unroll
  for (int distance = 1; distance < kWarp; distance *= 2) {
    const Int lower = __shfl_up_sync(0xFFFFFFFFU, value, distance);
    if (lane >= distance) value += lower;
  }
  return value;
}

// Calls `body(i, sum of f(j) over j < i)` for 0 <= i < size on the lanes of a warp; returns the sum
// of all.
template <typename Int, typename Function, typename Body>
__device__ Int ForSumsBefore(std::int32_t size, const Function& f, const Body& body) {
  Int sum = 0;
  for (std::int32_t first = 0; first < size; first += kWarp) {
    const auto i = static_cast<std::int32_t>(first + threadIdx.x % kWarp);
    const Int value = i < size ? f(i) : 0;
    const Int up_to = SumUpTo(value);
    if (i < size) body(i, sum + up_to - value);
    sum += __shfl_sync(0xFFFFFFFFU, up_to, kWarp - 1);
  }
  return sum;
}

// By one block: sums of counts, and unless `offsets` is null, the offsets and what is dropped.
// Without room for all rows, no expert has any.
__global__ void __launch_bounds__(kOffsetThreads)
    OffsetsKernel(SortSizes sizes, Tables tables, std::int32_t* offsets, std::int64_t* dropped,
                  std::int64_t* overflows) {
  AwaitEarlier();
  for (std::int32_t e = threadIdx.x / kWarp; e < sizes.num_experts; e += kOffsetThreads / kWarp) {
    std::int32_t* const before = tables.before + static_cast<std::int64_t>(e) * sizes.chunks;
    const auto chosen = ForSumsBefore<std::int32_t>(
        sizes.chunks, [&](std::int32_t chunk) { return before[chunk]; },
        [&](std::int32_t chunk, std::int32_t sum) { before[chunk] = sum; });
    if (threadIdx.x % kWarp == 0) tables.chosen[e] = chosen;
  }
  if (offsets == nullptr) return;
  __syncthreads();
  if (threadIdx.x >= kWarp) return;
  const auto chosen = [&](std::int32_t e) { return tables.chosen[e]; };
  const std::int32_t of_all = ForSumsBefore<std::int32_t>(
      sizes.num_experts, chosen, [&](std::int32_t e, std::int32_t sum) { tables.begins[e] = sum; });
  const std::int64_t kept = ForSumsBefore<std::int64_t>(
      sizes.num_experts, [&](std::int32_t e) { return sizes.Kept(tables.chosen[e]); },
      [&](std::int32_t, std::int64_t) {});
  const std::int64_t rows = ForSumsBefore<std::int64_t>(
      sizes.num_experts,
      [&](std::int32_t e) { return sizes.pads ? sizes.capacity : sizes.Kept(tables.chosen[e]); },
      [&](std::int32_t e, std::int64_t sum) { offsets[e] = static_cast<std::int32_t>(sum); });
  const bool fits = rows <= sizes.max_rows;
  if (!fits) {
    __syncwarp();
    for (std::int32_t e = threadIdx.x; e < sizes.num_experts; e += kWarp) offsets[e] = 0;
  }
  if (threadIdx.x != 0) return;
  tables.begins[sizes.num_experts] = of_all;
  offsets[sizes.num_experts] = fits ? static_cast<std::int32_t>(rows) : 0;
  if (!fits && overflows != nullptr) ++*overflows;
  if (fits && dropped != nullptr) *dropped += of_all - kept;
}

// A block gives the choices of a chunk their rows, and makes some of the rows of padding belong to
// no choice.
__global__ void __launch_bounds__(kThreads)
    RowsKernel(SortSizes sizes, Choices choices, Tables tables, const std::int32_t* offsets,
               std::int32_t* rows, std::int32_t* choices_of_rows) {
  AwaitEarlier();
  extern __shared__ std::int32_t ranks[];  // [kWarps, E]: of the next choice of each warp
  const std::int32_t experts = sizes.num_experts;
  std::int32_t* const mine = ranks + threadIdx.x / kWarp * experts;
  for (std::int32_t i = threadIdx.x; i < kWarps * experts; i += kThreads) ranks[i] = 0;
  __syncthreads();
  ForChoicesOfWarp([&](std::int32_t i) {
    const std::int32_t key = choices.KeyOf(sizes, i);
    if (key < experts) atomicAdd(&mine[key], 1);
  });
  __syncthreads();
  for (std::int32_t e = threadIdx.x; e < experts; e += kThreads) {
    std::int32_t rank = tables.before[e * sizes.chunks + blockIdx.x];
    for (int warp = 0; warp < kWarps; ++warp) {
      const std::int32_t count = ranks[warp * experts + e];
      ranks[warp * experts + e] = rank;
      rank += count;
    }
  }
  __syncthreads();
  ForChoicesOfWarp([&](std::int32_t i) {
    const std::int32_t key = choices.KeyOf(sizes, i);
    const unsigned int same = __match_any_sync(0xFFFFFFFFU, key);
    const unsigned int lower = same & ((1U << (threadIdx.x % kWarp)) - 1);
    std::int32_t row = -1;
    if (key < experts) {
      const std::int32_t rank = mine[key] + __popc(lower);
      if (rank < offsets[key + 1] - offsets[key]) row = offsets[key] + rank;
    }
    __syncwarp();
    if (key < experts && lower == 0) mine[key] += __popc(same);
    __syncwarp();
    if (i < sizes.count) rows[i] = row;
    if (row >= 0) choices_of_rows[row] = i;
  });
  for (std::int32_t e = blockIdx.x; e < experts; e += gridDim.x) {
    const std::int32_t kept = sizes.Kept(tables.chosen[e]);
    for (std::int32_t row = offsets[e] + kept + threadIdx.x; row < offsets[e + 1];
         row += kThreads) {
      choices_of_rows[row] = -1;
    }
  }
}

// Keys of choices, and their numbers.
__global__ void KeysKernel(SortSizes sizes, const std::int32_t* experts, std::int32_t* keys,
                           std::int32_t* choices) {
  AwaitEarlier();
  const auto i = static_cast<std::int32_t>(blockIdx.x * blockDim.x + threadIdx.x);
  if (i >= sizes.count) return;
  keys[i] = sizes.KeyOf(experts, i);
  choices[i] = i;
}

// Keys by which heavier choices come first, NaN last.
__global__ void WeightKeysKernel(const float* weights, std::int32_t count, std::uint32_t* keys) {
  AwaitEarlier();
  const auto i = static_cast<std::int32_t>(blockIdx.x * blockDim.x + threadIdx.x);
  if (i >= count) return;
  keys[i] = ~OrderOf(isnan(weights[i]) ? -INFINITY : weights[i]);
}

__global__ void GatherKeysKernel(const std::int32_t* keys, const std::int32_t* choices,
                                 std::int32_t count, std::int32_t* gathered) {
  AwaitEarlier();
  const auto i = static_cast<std::int32_t>(blockIdx.x * blockDim.x + threadIdx.x);
  if (i < count) gathered[i] = keys[choices[i]];
}

// kept[choice] = whether it is among the `capacity` heaviest of its expert. `by_weight` are the
// choices by expert, then heaviest first.
__global__ void KeepKernel(SortSizes sizes, const std::int32_t* sorted_keys,
                           const std::int32_t* begins, const std::int32_t* by_weight,
                           std::int32_t* kept) {
  AwaitEarlier();
  const auto i = static_cast<std::int32_t>(blockIdx.x * blockDim.x + threadIdx.x);
  if (i >= sizes.count) return;
  const std::int32_t expert = sorted_keys[i];
  kept[by_weight[i]] = expert < sizes.num_experts && i - begins[expert] < sizes.capacity ? 1 : 0;
}

// Finds the choices that a capacity keeps by their weights.
class WeightSort {
 public:
  explicit WeightSort(const SortSizes& sizes) : sizes_(sizes) {
    std::int32_t* const none = nullptr;
    Sort(nullptr, none, none, none, none, kWeightBits, nullptr);
  }

  [[nodiscard]] std::uint64_t ScratchBytes() const { return kArrays * stride() + sort_bytes_; }

  // kept [count], in `scratch`: whether a choice is among the heaviest of its expert, of which
  // there are as many as the capacity.
  const std::int32_t* Keep(cudaStream_t stream, const std::int32_t* experts, const float* weights,
                           const std::int32_t* begins, std::byte* scratch) {
    const auto array = [&](std::uint64_t i) {
      return reinterpret_cast<std::int32_t*>(scratch + i * stride());
    };
    std::byte* const memory = scratch + kArrays * stride();
    std::int32_t* const keys = array(0);
    std::int32_t* const order = array(1);
    std::int32_t* const by_weight = array(2);
    std::int32_t* const keys_by_weight = array(3);
    std::int32_t* const sorted_keys = array(4);
    auto* const weight_keys = reinterpret_cast<std::uint32_t*>(keys_by_weight);
    auto* const sorted_weights = reinterpret_cast<std::uint32_t*>(sorted_keys);
    std::int32_t* const kept = keys;  // when the keys are no longer needed
    const unsigned int blocks = Blocks(sizes_.count, kThreads);
    Launch(stream, KeysKernel, {blocks, kThreads}, sizes_, experts, keys, order);
    Launch(stream, WeightKeysKernel, {blocks, kThreads}, weights, sizes_.count, weight_keys);
    Sort(memory, weight_keys, sorted_weights, order, by_weight, kWeightBits, stream);
    Launch(stream, GatherKeysKernel, {blocks, kThreads}, keys, by_weight, sizes_.count,
           keys_by_weight);
    // Heaviest first within each expert, because the second sort is stable.
    const int key_bits = std::bit_width(static_cast<std::uint32_t>(sizes_.num_experts));
    Sort(memory, keys_by_weight, sorted_keys, by_weight, order, key_bits, stream);
    Launch(stream, KeepKernel, {blocks, kThreads}, sizes_, sorted_keys, begins, order, kept);
    return kept;
  }

 private:
  static constexpr int kWeightBits = 32;  // a pass of a sort takes 8
  static constexpr std::uint64_t kArrays = 5;

  [[nodiscard]] std::uint64_t stride() const {
    return AlignedBytes(static_cast<std::uint64_t>(sizes_.count) * sizeof(std::int32_t));
  }

  template <typename Key>
  void Sort(void* memory, const Key* keys, Key* sorted_keys, const std::int32_t* values,
            std::int32_t* sorted_values, int bits, cudaStream_t stream) {
    (void)cub::DeviceRadixSort::SortPairs(memory, sort_bytes_, keys, sorted_keys, values,
                                          sorted_values, sizes_.count, 0, bits, stream);
  }

  const SortSizes sizes_;
  std::size_t sort_bytes_ = 0;
};

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
  const auto count = static_cast<std::int32_t>(experts.num_elems());
  // A chunk without choices counts none, and its block still makes rows of padding.
  const unsigned int chunks = cuda::Blocks(std::max(count, 1), cuda::kChunk);
  const cuda::SortSizes sizes = {.count = count,
                                 .first_expert = form.first_expert,
                                 .num_experts = static_cast<std::int32_t>(form.num_experts),
                                 .chunks = static_cast<std::int32_t>(chunks),
                                 .capacity = static_cast<std::int32_t>(form.capacity),
                                 .pads = form.pad,
                                 .max_rows = sorted.choices.num_elems()};
  RunOnCuda(queue, [&](CudaQueue& on) {
    const cudaStream_t stream = on.stream();
    std::optional<cuda::WeightSort> by_weight;
    if (is_weighed && count > 0) by_weight.emplace(sizes);
    const auto num_experts = static_cast<std::uint64_t>(form.num_experts);
    const std::uint64_t table_bytes =
        cuda::AlignedBytes((num_experts * (chunks + 2) + 1) * sizeof(std::int32_t));
    std::byte* const scratch =
        on.Scratch(table_bytes + (by_weight ? by_weight->ScratchBytes() : 0));
    if (scratch == nullptr) return;
    auto* const before = reinterpret_cast<std::int32_t*>(scratch);
    std::int32_t* const chosen = before + num_experts * chunks;
    const cuda::Tables tables = {
        .before = before, .chosen = chosen, .begins = chosen + num_experts};
    cuda::Choices choices = {.experts = experts.as<const std::int32_t>()};
    std::int32_t* const offsets = sorted.offsets.as<std::int32_t>();
    const std::size_t expert_bytes = num_experts * sizeof(std::int32_t);

    cuda::Launch(stream, cuda::CountChoicesKernel, {chunks, cuda::kThreads, expert_bytes}, sizes,
                 choices, tables);
    cuda::Launch(stream, cuda::OffsetsKernel, {1, cuda::kOffsetThreads}, sizes, tables, offsets,
                 dropped.as<std::int64_t>(), overflows.as<std::int64_t>());
    if (by_weight) {
      choices.kept = by_weight->Keep(stream, choices.experts, weights.as<const float>(),
                                     tables.begins, scratch + table_bytes);
      cuda::Launch(stream, cuda::CountChoicesKernel, {chunks, cuda::kThreads, expert_bytes}, sizes,
                   choices, tables);
      cuda::Launch(stream, cuda::OffsetsKernel, {1, cuda::kOffsetThreads}, sizes, tables, nullptr,
                   nullptr, nullptr);
    }
    cuda::Launch(stream, cuda::RowsKernel, {chunks, cuda::kThreads, cuda::kWarps * expert_bytes},
                 sizes, choices, tables, offsets, sorted.rows.as<std::int32_t>(),
                 sorted.choices.as<std::int32_t>());
  });
}

}  // namespace ckpt::trainer
