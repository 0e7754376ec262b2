// Keeps experts evenly used: auxiliary losses, and the bias that is updated from counts. Counts are
// added by integer atomics, whose order does not matter; losses in a fixed order.
#include <cstdint>

#include "core/base/check.h"
#include "trainer/ops/cuda/cuda_ops_impl.h"
#include "trainer/ops/cuda/kernel.cuh"
#include "trainer/ops/cuda/routing.cuh"

namespace ckpt::trainer {
namespace cuda {
namespace {

// How often experts are chosen in each segment, in scratch memory: the whole micro-batch, or a
// sequence.
struct Loads {
  std::int32_t* counts;  // [segments, E]
  std::int32_t* tokens;  // [segments], routed ones
  std::int32_t* all;     // [2]: routed tokens, and segments that have any
  double* values;        // [T]: the loss of each token
  std::int64_t segments = 1;
  std::int64_t segment_rows = 0;

  Loads(std::byte* scratch, const RouterSizes& sizes, std::int64_t rows_of_segment)
      : segments(sizes.tokens / rows_of_segment), segment_rows(rows_of_segment) {
    values = reinterpret_cast<double*>(scratch);
    counts = reinterpret_cast<std::int32_t*>(values + sizes.tokens);
    tokens = counts + segments * sizes.experts;
    all = tokens + segments;
  }
  static std::uint64_t Bytes(const RouterSizes& sizes, std::int64_t rows_of_segment) {
    const std::int64_t segments = sizes.tokens / rows_of_segment;
    return static_cast<std::uint64_t>(sizes.tokens) * sizeof(double) +
           static_cast<std::uint64_t>(segments * (sizes.experts + 1) + 2) * sizeof(std::int32_t);
  }
};

// Each of a segment's `blocks` counts some of its tokens in shared memory, and adds the sums.
__global__ void CountLoadsKernel(RouterSizes sizes, const std::int32_t* experts, Loads loads,
                                 unsigned int blocks) {
  AwaitEarlier();
  extern __shared__ std::int32_t counts[];  // [E]
  for (int e = static_cast<int>(threadIdx.x); e < sizes.experts; e += kThreads) counts[e] = 0;
  __syncthreads();
  const std::int64_t segment = blockIdx.x / blocks;
  const std::int64_t row = static_cast<std::int64_t>(blockIdx.x % blocks) * kThreads + threadIdx.x;
  const std::int32_t* const chosen = experts + (segment * loads.segment_rows + row) * sizes.topk;
  const bool is_routed = row < loads.segment_rows && chosen[0] != kNoExpert;
  for (int k = 0; is_routed && k < sizes.topk; ++k) atomicAdd(&counts[chosen[k]], 1);
  const int routed = __syncthreads_count(is_routed);
  for (int e = static_cast<int>(threadIdx.x); e < sizes.experts; e += kThreads) {
    if (counts[e] != 0) atomicAdd(&loads.counts[segment * sizes.experts + e], counts[e]);
  }
  if (threadIdx.x != 0 || routed == 0) return;
  if (atomicAdd(&loads.tokens[segment], routed) == 0) atomicAdd(&loads.all[1], 1);
  atomicAdd(&loads.all[0], routed);
}

struct AuxFactors {
  bool balances = false;
  float coefficient = 0;
  float z_coefficient = 0;
  float gradient_scale = 0;
};

// A warp works on one token. The formulas are those of the CPU's expert_balance.cc.
__global__ void __launch_bounds__(kThreads)
    AuxLossKernel(RouterSizes sizes, AuxFactors aux, const float* logits, const float* scores,
                  const std::int32_t* experts, Loads loads, float* dlogits) {
  AwaitEarlier();
  const std::int64_t token = WarpIndex();
  if (token >= sizes.tokens) return;
  const int lane = threadIdx.x % kWarp;
  double value = 0;
  if (experts[token * sizes.topk] != kNoExpert) {
    const float* const logit = logits + token * sizes.experts;
    const float* const score = scores + token * sizes.experts;
    float* const dlogit = dlogits == nullptr ? nullptr : dlogits + token * sizes.experts;
    if (aux.balances) {
      const std::int64_t segment = token / loads.segment_rows;
      const std::int32_t* const counts = loads.counts + segment * sizes.experts;
      const auto tokens = static_cast<float>(loads.tokens[segment]);
      const float factor =
          aux.coefficient * static_cast<float>(sizes.experts) /
          (static_cast<float>(sizes.topk) * tokens * tokens * static_cast<float>(loads.all[1]));
      const bool is_sigmoid = sizes.score == ScoreFunction::kSigmoid;
      float sum = 0;
      for (int e = lane; e < sizes.experts; e += kWarp) sum += score[e];
      sum = is_sigmoid ? WarpSum(sum) + kTinySum : 1;
      float loss = 0;
      for (int e = lane; e < sizes.experts; e += kWarp) {
        loss += score[e] / sum * (factor * static_cast<float>(counts[e]));
      }
      loss = WarpSum(loss);
      value += loss;
      // Σ p·dp over the experts is the loss times the scale of gradients.
      const float mean = loss * aux.gradient_scale;
      for (int e = lane; dlogit != nullptr && e < sizes.experts; e += kWarp) {
        const float dp = factor * static_cast<float>(counts[e]) * aux.gradient_scale;
        dlogit[e] +=
            is_sigmoid ? (dp - mean) / sum * score[e] * (1 - score[e]) : score[e] * (dp - mean);
      }
    }
    if (aux.z_coefficient != 0) {
      const float z_factor = aux.z_coefficient / static_cast<float>(loads.all[0]);
      float largest = -INFINITY;
      for (int e = lane; e < sizes.experts; e += kWarp) largest = fmaxf(largest, logit[e]);
      largest = WarpMax(largest);
      float sum = 0;
      for (int e = lane; e < sizes.experts; e += kWarp) sum += expf(logit[e] - largest);
      const float lse = largest + logf(WarpSum(sum));
      value += static_cast<double>(z_factor) * lse * lse;
      const float slope = 2 * z_factor * lse * aux.gradient_scale;
      for (int e = lane; dlogit != nullptr && e < sizes.experts; e += kWarp) {
        dlogit[e] += slope * expf(logit[e] - lse);
      }
    }
  }
  if (lane == 0) loads.values[token] = value;
}

constexpr int kSumThreads = 1024;

// loss += Σ values, by one block in a fixed order.
__global__ void AddValuesKernel(const double* values, std::int64_t count, float* loss) {
  AwaitEarlier();
  __shared__ double sums[kSumThreads];
  double sum = 0;
  for (std::int64_t i = threadIdx.x; i < count; i += kSumThreads) sum += values[i];
  sums[threadIdx.x] = sum;
  __syncthreads();
  for (int half = kSumThreads / 2; half > 0; half /= 2) {
    if (threadIdx.x < half) sums[threadIdx.x] += sums[threadIdx.x + half];
    __syncthreads();
  }
  if (threadIdx.x == 0) *loss += static_cast<float>(sums[0]);
}

__global__ void CountRowsKernel(const std::int32_t* offsets, std::int64_t segments,
                                std::int64_t num_experts, std::int64_t* counts) {
  AwaitEarlier();
  const std::int64_t e = static_cast<std::int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
  if (e < num_experts) counts[e] += offsets[(e + 1) * segments] - offsets[e * segments];
}

__global__ void UpdateExpertBiasKernel(const std::int64_t* counts, std::int64_t num_experts,
                                       float rate, const UpdateScalars* update, float* bias) {
  AwaitEarlier();
  if (update->skip != 0) return;
  const std::int64_t e = static_cast<std::int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
  if (e >= num_experts) return;
  std::int64_t total = 0;
  for (std::int64_t i = 0; i < num_experts; ++i) total += counts[i];
  // The sign of total/E - count, computed in integers.
  const std::int64_t lack = total - counts[e] * num_experts;
  if (lack != 0) bias[e] += lack > 0 ? rate : -rate;
}

}  // namespace
}  // namespace cuda

void CudaOps::RouterAuxLoss(Queue& queue, const RouterForm& form, const AuxLossForm& aux,
                            const Tensor& logits, const Tensor& scores, const Tensor& experts,
                            double gradient_scale, const Tensor& loss, const Tensor& dlogits) {
  const cuda::RouterSizes sizes = cuda::SizesOf(form, scores, experts);
  CKPT_CHECK(!loss || (loss.dtype == DType::kFloat32 && loss.num_elems() == 1));
  if (sizes.tokens == 0) return;
  const std::int64_t segment_rows = aux.kind == AuxLoss::kSequence ? aux.seq : sizes.tokens;
  CKPT_CHECK(segment_rows > 0 && sizes.tokens % segment_rows == 0);
  const cuda::AuxFactors factors = {.balances = aux.kind != AuxLoss::kNone,
                                    .coefficient = static_cast<float>(aux.coefficient),
                                    .z_coefficient = static_cast<float>(aux.z_coefficient),
                                    .gradient_scale = static_cast<float>(gradient_scale)};
  RunOnCuda(queue, [&](CudaQueue& on) {
    const std::uint64_t scratch_bytes = cuda::Loads::Bytes(sizes, segment_rows);
    std::byte* const scratch = on.Scratch(scratch_bytes);
    if (scratch == nullptr) return;
    const cuda::Loads loads(scratch, sizes, segment_rows);
    (void)cudaMemsetAsync(scratch, 0, scratch_bytes, on.stream());
    const unsigned int blocks = cuda::Blocks(segment_rows, cuda::kThreads);
    cuda::Launch(on.stream(), cuda::CountLoadsKernel,
                 {static_cast<unsigned int>(loads.segments) * blocks, cuda::kThreads,
                  static_cast<std::size_t>(sizes.experts) * sizeof(std::int32_t)},
                 sizes, experts.as<const std::int32_t>(), loads, blocks);
    cuda::Launch(on.stream(), cuda::AuxLossKernel,
                 {cuda::Blocks(sizes.tokens, cuda::kThreads / cuda::kWarp), cuda::kThreads}, sizes,
                 factors, logits.as<const float>(), scores.as<const float>(),
                 experts.as<const std::int32_t>(), loads, dlogits.as<float>());
    if (!loss) return;
    cuda::Launch(on.stream(), cuda::AddValuesKernel, {1, cuda::kSumThreads}, loads.values,
                 sizes.tokens, loss.as<float>());
  });
}

void CudaOps::CountRows(Queue& queue, const Tensor& offsets, std::int64_t segments,
                        const Tensor& counts) {
  CKPT_CHECK(offsets.dtype == DType::kInt32 && counts.dtype == DType::kInt64 && segments > 0);
  CKPT_CHECK(offsets.num_elems() == counts.num_elems() * segments + 1);
  RunOnCuda(queue, [&](CudaQueue& on) {
    cuda::Launch(on.stream(), cuda::CountRowsKernel,
                 {cuda::Blocks(counts.num_elems(), cuda::kThreads), cuda::kThreads},
                 offsets.as<const std::int32_t>(), segments, counts.num_elems(),
                 counts.as<std::int64_t>());
  });
}

void CudaOps::UpdateExpertBias(Queue& queue, const Tensor& counts, double rate,
                               const Tensor& update, const Tensor& bias) {
  CKPT_CHECK(counts.dtype == DType::kInt64 && counts.num_elems() == bias.num_elems());
  RunOnCuda(queue, [&](CudaQueue& on) {
    cuda::Launch(on.stream(), cuda::UpdateExpertBiasKernel,
                 {cuda::Blocks(counts.num_elems(), cuda::kThreads), cuda::kThreads},
                 counts.as<const std::int64_t>(), counts.num_elems(), static_cast<float>(rate),
                 update.as<const UpdateScalars>(), bias.as<float>());
  });
}

}  // namespace ckpt::trainer
