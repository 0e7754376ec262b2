// How tokens choose experts, and its backward. A warp works on one token; its lanes share the
// experts.
#include <cstdint>

#include "core/base/check.h"
#include "trainer/ops/cuda/cuda_ops_impl.h"
#include "trainer/ops/cuda/kernel.cuh"
#include "trainer/ops/cuda/routing.cuh"

namespace ckpt::trainer {
namespace cuda {
namespace {

// A candidate and where it stands. The larger value wins; of equal values, the lowest index. A NaN
// counts as the smallest value, so that there is always a winner.
struct Candidate {
  float value = -INFINITY;
  int index = INT_MAX;

  __device__ void Take(float other_value, int other_index) {
    if (isnan(other_value)) other_value = -INFINITY;
    if (other_value > value || (other_value == value && other_index < index)) {
      value = other_value;
      index = other_index;
    }
  }
};

// The index of the best candidate of the warp, by the instructions that reduce integers.
__device__ int WarpBest(const Candidate& mine) {
  const unsigned int order = OrderOf(mine.value);
  const bool is_best = order == __reduce_max_sync(0xFFFFFFFFU, order);
  return __reduce_min_sync(0xFFFFFFFFU, is_best ? mine.index : INT_MAX);
}

// The indices of the `count` best of values[0 … size) for which `taken` is 0, best first, to
// `chosen`; sets their `taken`. All lanes call it with the same arrays, in shared memory.
__device__ void ChooseBest(const float* values, int size, int count, std::uint8_t* taken,
                           std::int32_t* chosen) {
  const int lane = threadIdx.x % kWarp;
  for (int slot = 0; slot < count; ++slot) {
    Candidate mine;
    for (int i = lane; i < size; i += kWarp) {
      if (taken[i] == 0) mine.Take(values[i], i);
    }
    const int best = WarpBest(mine);
    if (lane == 0) {
      chosen[slot] = best;
      taken[best] = 1;
    }
    __syncwarp();
  }
}

// The arrays of a warp in shared memory.
struct WarpArrays {
  float* values;         // [E]
  std::uint8_t* taken;   // [E]
  std::int32_t* chosen;  // [K]
  float* group_values;   // [groups]
  std::uint8_t* group_taken;
  std::int32_t* groups;

  static __host__ __device__ std::size_t Bytes(const RouterSizes& sizes) {
    const auto experts = static_cast<std::size_t>(sizes.experts);
    const auto num_groups = static_cast<std::size_t>(sizes.num_groups);
    const std::size_t bytes =
        experts * 5 + num_groups * 9 + static_cast<std::size_t>(sizes.topk) * 4;
    return (bytes + 15) / 16 * 16;
  }
  __device__ WarpArrays(std::byte* memory, const RouterSizes& sizes) {
    values = reinterpret_cast<float*>(memory);
    group_values = values + sizes.experts;
    chosen = reinterpret_cast<std::int32_t*>(group_values + sizes.num_groups);
    groups = chosen + sizes.topk;
    taken = reinterpret_cast<std::uint8_t*>(groups + sizes.num_groups);
    group_taken = taken + sizes.experts;
  }
};

__device__ float GroupScoreOf(const float* values, int size, bool adds_two) {
  float best = -INFINITY;
  float second = -INFINITY;
  for (int i = 0; i < size; ++i) {
    if (values[i] > best) {
      second = best;
      best = values[i];
    } else if (values[i] > second) {
      second = values[i];
    }
  }
  return adds_two && size > 1 ? best + second : best;
}

// Only experts of the best groups stay eligible.
__device__ void LimitGroups(const RouterSizes& sizes, const WarpArrays& at) {
  const int lane = threadIdx.x % kWarp;
  const int size = sizes.experts / sizes.num_groups;
  for (int group = lane; group < sizes.num_groups; group += kWarp) {
    at.group_values[group] = GroupScoreOf(at.values + group * size, size, sizes.adds_two);
    at.group_taken[group] = 0;
  }
  __syncwarp();
  ChooseBest(at.group_values, sizes.num_groups, sizes.group_topk, at.group_taken, at.groups);
  for (int e = lane; e < sizes.experts; e += kWarp) at.taken[e] = at.group_taken[e / size] == 0;
  __syncwarp();
}

__global__ void __launch_bounds__(kThreads)
    RouterKernel(RouterSizes sizes, const float* logits, const float* expert_bias,
                 const std::int32_t* positions, float* scores, std::int32_t* experts,
                 float* weights) {
  AwaitEarlier();
  extern __shared__ std::byte memory[];
  const std::int64_t token = WarpIndex();
  if (token >= sizes.tokens) return;
  const int lane = threadIdx.x % kWarp;
  const WarpArrays at(memory + threadIdx.x / kWarp * WarpArrays::Bytes(sizes), sizes);
  const float* const logit = logits + token * sizes.experts;
  float* const score = scores + token * sizes.experts;
  const bool is_padding = sizes.is_assigned ? experts[token * sizes.topk] == kNoExpert
                                            : positions != nullptr && positions[token] < 0;
  if (is_padding) {
    __syncwarp();  // all lanes have read before one writes
    for (int e = lane; e < sizes.experts; e += kWarp) score[e] = 0;
    for (int k = lane; k < sizes.topk; k += kWarp) {
      experts[token * sizes.topk + k] = kNoExpert;
      weights[token * sizes.topk + k] = 0;
    }
    return;
  }

  const bool is_sigmoid = sizes.score == ScoreFunction::kSigmoid;
  float largest = -INFINITY;
  for (int e = lane; e < sizes.experts; e += kWarp) largest = fmaxf(largest, logit[e]);
  largest = WarpMax(largest);
  float sum = 0;
  for (int e = lane; e < sizes.experts; e += kWarp) sum += expf(logit[e] - largest);
  sum = WarpSum(sum);
  for (int e = lane; e < sizes.experts; e += kWarp) {
    score[e] = is_sigmoid ? 1 / (1 + expf(-logit[e])) : expf(logit[e] - largest) / sum;
    const float value = sizes.score == ScoreFunction::kSoftmaxTopK ? logit[e] : score[e];
    at.values[e] = expert_bias == nullptr ? value : value + expert_bias[e];
    at.taken[e] = 0;
  }
  if (sizes.is_assigned) {
    for (int k = lane; k < sizes.topk; k += kWarp) at.chosen[k] = experts[token * sizes.topk + k];
  }
  __syncwarp();
  if (!sizes.is_assigned) {
    if (sizes.num_groups > 1) LimitGroups(sizes, at);
    ChooseBest(at.values, sizes.experts, sizes.topk, at.taken, at.chosen);
  }

  // Every lane sums the few that were chosen, in the same order.
  const bool is_topk = sizes.score == ScoreFunction::kSoftmaxTopK;
  float chosen_largest = -INFINITY;
  for (int k = 0; k < sizes.topk; ++k) {
    chosen_largest = fmaxf(chosen_largest, logit[at.chosen[k]]);
  }
  const auto weight_of = [&](int k) {
    const int expert = at.chosen[k];
    return is_topk ? expf(logit[expert] - chosen_largest) : score[expert];
  };
  float total = is_sigmoid ? kTinySum : 0;
  for (int k = 0; k < sizes.topk; ++k) total += weight_of(k);
  if (!is_topk && !sizes.normalizes) total = 1;
  for (int k = lane; k < sizes.topk; k += kWarp) {
    experts[token * sizes.topk + k] = at.chosen[k];
    weights[token * sizes.topk + k] = weight_of(k) / total * sizes.scaling;
  }
}

// The chosen experts of a token are spread over the lanes of its warp, then those of all experts
// are. Shared memory: the gradients of the scores, [E] for each warp.
__global__ void __launch_bounds__(kThreads)
    RouterBackwardKernel(RouterSizes sizes, const float* scores, const std::int32_t* experts,
                         const float* dweights, float* dlogits) {
  AwaitEarlier();
  extern __shared__ float memory_of_scores[];
  const std::int64_t token = WarpIndex();
  if (token >= sizes.tokens) return;
  const int lane = threadIdx.x % kWarp;
  float* const dscores = memory_of_scores + threadIdx.x / kWarp * sizes.experts;
  const float* const score = scores + token * sizes.experts;
  const std::int32_t* const chosen = experts + token * sizes.topk;
  const float* const dweight = dweights + token * sizes.topk;
  float* const dlogit = dlogits + token * sizes.experts;
  const bool is_routed = chosen[0] != kNoExpert;
  const bool is_sigmoid = sizes.score == ScoreFunction::kSigmoid;
  const bool normalizes = sizes.normalizes || sizes.score == ScoreFunction::kSoftmaxTopK;
  for (int e = lane; e < sizes.experts; e += kWarp) dscores[e] = 0;
  __syncwarp();

  float dot = 0;
  if (is_routed) {
    float total = 1;
    float mean = 0;  // of the gradient, weighted by the normalised scores
    if (normalizes) {
      float sum = 0;
      float weighted = 0;
      for (int k = lane; k < sizes.topk; k += kWarp) {
        const float s = score[chosen[k]];
        sum += s;
        weighted += s * dweight[k];
      }
      total = WarpSum(sum) + (is_sigmoid ? kTinySum : 0);
      mean = WarpSum(weighted) / total;
    }
    for (int k = lane; k < sizes.topk; k += kWarp) {
      const float dscore = sizes.scaling * (dweight[k] - mean) / total;
      dscores[chosen[k]] = dscore;
      dot += score[chosen[k]] * dscore;
    }
    dot = is_sigmoid ? 0 : WarpSum(dot);
    __syncwarp();
  }
  for (int e = lane; e < sizes.experts; e += kWarp) {
    const float s = score[e];
    dlogit[e] = !is_routed ? 0 : is_sigmoid ? dscores[e] * s * (1 - s) : s * (dscores[e] - dot);
  }
}

}  // namespace
}  // namespace cuda

void CudaOps::Router(Queue& queue, const RouterForm& form, const Tensor& logits,
                     const Tensor& expert_bias, const Tensor& positions, const Tensor& scores,
                     const Tensor& experts, const Tensor& weights) {
  const cuda::RouterSizes sizes = cuda::SizesOf(form, scores, experts);
  CKPT_CHECK(logits.dtype == DType::kFloat32 && logits.num_elems() == scores.num_elems());
  CKPT_CHECK(weights.dtype == DType::kFloat32 && weights.num_elems() == experts.num_elems());
  CKPT_CHECK(!form.is_assigned || (!expert_bias && !positions));
  if (sizes.tokens == 0) return;
  RunOnCuda(queue, [&](CudaQueue& on) {
    constexpr int kTokens = cuda::kThreads / cuda::kWarp;
    const std::size_t shared_bytes = kTokens * cuda::WarpArrays::Bytes(sizes);
    cuda::Launch(on.stream(), cuda::RouterKernel,
                 {cuda::Blocks(sizes.tokens, kTokens), cuda::kThreads, shared_bytes}, sizes,
                 logits.as<const float>(), expert_bias.as<const float>(),
                 positions.as<const std::int32_t>(), scores.as<float>(), experts.as<std::int32_t>(),
                 weights.as<float>());
  });
}

void CudaOps::RouterBackward(Queue& queue, const RouterForm& form, const Tensor& scores,
                             const Tensor& experts, const Tensor& dweights, const Tensor& dlogits) {
  const cuda::RouterSizes sizes = cuda::SizesOf(form, scores, experts);
  CKPT_CHECK(dlogits.dtype == DType::kFloat32 && dlogits.num_elems() == scores.num_elems());
  if (sizes.tokens == 0) return;
  RunOnCuda(queue, [&](CudaQueue& on) {
    constexpr int kTokens = cuda::kThreads / cuda::kWarp;
    const std::size_t shared_bytes =
        kTokens * static_cast<std::size_t>(sizes.experts) * sizeof(float);
    cuda::Launch(on.stream(), cuda::RouterBackwardKernel,
                 {cuda::Blocks(sizes.tokens, kTokens), cuda::kThreads, shared_bytes}, sizes,
                 scores.as<const float>(), experts.as<const std::int32_t>(),
                 dweights.as<const float>(), dlogits.as<float>());
  });
}

}  // namespace ckpt::trainer
