// What a step sums and decides. Sums over rows and tokens are plain float64 in a fixed order; the
// limbs of an ExactSum carry them through the all-reduce, so the ranks' order does not matter.
#include <cmath>
#include <cstdint>

#include "core/base/check.h"
#include "trainer/ops/cuda/cuda_ops_impl.h"
#include "trainer/ops/cuda/kernel.cuh"

namespace ckpt::trainer {
namespace cuda {
namespace {

constexpr int kTop = static_cast<int>(ExactSum::kLimbs) - 2;
constexpr int kNotFinite = static_cast<int>(ExactSum::kLimbs) - 1;

// ExactSum::Add. Carries wait for the host or, in ValueOf, do not matter.
__device__ void AddTo(std::int64_t* limbs, double term) {
  const auto bits = static_cast<std::uint64_t>(__double_as_longlong(term));
  const std::uint64_t exponent = bits >> 52 & 0x7FF;
  if (exponent == 0x7FF) {
    ++limbs[kNotFinite];
    return;
  }
  const std::uint64_t fraction = bits & ((std::uint64_t{1} << 52) - 1);
  const std::uint64_t significand = exponent == 0 ? fraction : fraction | std::uint64_t{1} << 52;
  const std::uint64_t shift = exponent == 0 ? 0 : exponent - 1;
  const int within = static_cast<int>(shift % 32);
  const std::uint64_t low = significand << within;
  const std::uint64_t high = within == 0 ? 0 : significand >> (64 - within);
  const std::int64_t sign = (bits >> 63) != 0 ? -1 : 1;
  std::int64_t* const limb = limbs + shift / 32;
  limb[0] += sign * static_cast<std::int64_t>(low & 0xFFFFFFFF);
  limb[1] += sign * static_cast<std::int64_t>(low >> 32);
  limb[2] += sign * static_cast<std::int64_t>(high);
}

// The sum, within a few roundings.
__device__ double ValueOf(const ExactSum::Limbs& sum) {
  const auto* limbs = reinterpret_cast<const std::int64_t*>(&sum);
  if (limbs[kNotFinite] != 0) return nan("");
  double value = 0;
  for (int i = kTop; i >= 0; --i) {
    if (limbs[i] != 0) value += ldexp(static_cast<double>(limbs[i]), 32 * i - 1074);
  }
  return value;
}

__device__ std::int64_t* LimbsOf(ExactSum::Limbs& sum) {
  return reinterpret_cast<std::int64_t*>(&sum);
}

// The sum over the threads of a block of kThreads, in thread 0.
__device__ double BlockSum(double value) {
  __shared__ double parts[kThreads];
  parts[threadIdx.x] = value;
  __syncthreads();
  for (int half = kThreads / 2; half > 0; half /= 2) {
    if (threadIdx.x < half) parts[threadIdx.x] += parts[threadIdx.x + half];
    __syncthreads();
  }
  return parts[0];
}

__global__ void AddLossesKernel(bool per_token, std::int64_t counted, const float* losses,
                                std::int64_t tokens, const float* aux_loss, StepSums* sums,
                                double* mean) {
  AwaitEarlier();
  double part = 0;
  for (std::int64_t t = threadIdx.x; t < tokens; t += kThreads) part += losses[t];
  const double sum = BlockSum(part);
  if (threadIdx.x != 0) return;
  const double of_batch = counted > 0 ? sum / static_cast<double>(counted) : 0;
  if (counted > 0) AddTo(LimbsOf(sums->loss), per_token ? sum : of_batch);
  AddTo(LimbsOf(sums->aux_loss), *aux_loss);
  *mean = isfinite(sum) && isfinite(*aux_loss) ? of_batch : nan("");
}

__global__ void AverageKernel(const StepSums* sums, UpdateScalars* update) {
  AwaitEarlier();
  update->scale = sums->tokens > 1 ? 1 / static_cast<double>(sums->tokens) : 1;
}

// What a block makes of its rows: their sum, and the first that is not finite.
struct RowsPart {
  double sum = 0;
  std::int64_t first_bad = 0;  // `rows` if all are finite
};

// Call it with every thread of a block. Thread 0 gets the least.
__device__ std::int64_t BlockMin(std::int64_t value) {
  __shared__ std::int64_t parts[kThreads];
  parts[threadIdx.x] = value;
  __syncthreads();
  for (int half = kThreads / 2; half > 0; half /= 2) {
    if (threadIdx.x < half && parts[threadIdx.x + half] < parts[threadIdx.x]) {
      parts[threadIdx.x] = parts[threadIdx.x + half];
    }
    __syncthreads();
  }
  return parts[0];
}

__global__ void SumRowsKernel(const double* row_sums, std::int64_t rows,
                              const UpdateScalars* update, RowsPart* parts) {
  AwaitEarlier();
  double part = 0;
  std::int64_t first_bad = rows;
  const std::int64_t stride = static_cast<std::int64_t>(gridDim.x) * kThreads;
  for (std::int64_t i = static_cast<std::int64_t>(blockIdx.x) * kThreads + threadIdx.x; i < rows;
       i += stride) {
    part += row_sums[i];
    if (!isfinite(row_sums[i]) && i < first_bad) first_bad = i;
  }
  const double sum = BlockSum(part);
  const std::int64_t bad = BlockMin(first_bad);
  if (threadIdx.x == 0) parts[blockIdx.x] = {update->scale * update->scale * sum, bad};
}

__global__ void AddSquaresKernel(const RowsPart* parts, int num_parts, std::int64_t rows,
                                 StepSums* sums, StepOutcome* outcome) {
  AwaitEarlier();
  std::int64_t first_bad = rows;
  for (int i = 0; i < num_parts; ++i) {
    AddTo(LimbsOf(sums->squares), parts[i].sum);
    if (parts[i].first_bad < first_bad) first_bad = parts[i].first_bad;
  }
  outcome->bad_row = first_bad < rows ? first_bad : -1;
}

__global__ void DecideKernel(StepRule rule, const StepSums* sums, const std::int64_t* peaks,
                             std::int64_t ranks, std::int64_t* has_failed, UpdateScalars* update,
                             StepOutcome* outcome) {
  AwaitEarlier();
  const auto num_batches = static_cast<double>(rule.num_batches);
  const double divisor = rule.per_token_loss ? static_cast<double>(sums->tokens) : num_batches;
  outcome->loss = divisor > 0 ? ValueOf(sums->loss) / divisor : 0;
  outcome->aux_loss = ValueOf(sums->aux_loss) / num_batches;
  outcome->grad_norm = sqrt(ValueOf(sums->squares));
  outcome->tokens = sums->tokens;
  outcome->dropped = sums->dropped;
  outcome->stop_votes = sums->stop_votes;
  std::int64_t peak = 0;
  for (std::int64_t rank = 0; rank < ranks; ++rank) {
    if (peaks[rank] > peak) peak = peaks[rank];
  }
  outcome->peak_bytes = peak;
  StepFailure failure = StepFailure::kNone;
  if (sums->overflows > 0) {
    failure = StepFailure::kOverflow;
  } else if (!isfinite(outcome->loss) || !isfinite(outcome->aux_loss)) {
    failure = StepFailure::kLoss;
  } else if (!isfinite(outcome->grad_norm)) {
    failure = StepFailure::kGradient;
  }
  if (has_failed != nullptr) {
    if (*has_failed != 0) failure = StepFailure::kEarlier;
    if (failure != StepFailure::kNone) *has_failed = 1;
  }
  outcome->failure = failure;
  const double clip = rule.clip_grad / (outcome->grad_norm + 1e-6);
  update->clip = rule.clip_grad == 0 || !(clip < 1) ? 1 : clip;
  update->skip = failure == StepFailure::kNone ? 0 : 1;
  outcome->scale = update->scale;
  outcome->clip = update->clip;
}

__global__ void EnterPhaseKernel(std::int64_t phase, PhaseTimes* times) {
  AwaitEarlier();
  std::int64_t now;
  asm volatile("mov.u64 %0, %globaltimer;" : "=l"(now));
  if (times->since_ns != 0) times->ns[times->phase] += now - times->since_ns;
  times->phase = phase;
  times->since_ns = now;
}

}  // namespace
}  // namespace cuda

void CudaOps::AddLosses(Queue& queue, const StepRule& rule, std::int64_t counted,
                        const Tensor& losses, const Tensor& aux_loss, const Tensor& sums,
                        const Tensor& mean) {
  CKPT_CHECK(losses.dtype == DType::kFloat32 && aux_loss.dtype == DType::kFloat32);
  RunOnCuda(queue, [&](CudaQueue& on) {
    cuda::Launch(on.stream(), cuda::AddLossesKernel, {1, cuda::kThreads}, rule.per_token_loss,
                 counted, losses.as<const float>(), losses.num_elems(), aux_loss.as<const float>(),
                 sums.as<StepSums>(), mean.as<double>());
  });
}

void CudaOps::AverageOverTokens(Queue& queue, const Tensor& sums, const Tensor& update) {
  RunOnCuda(queue, [&](CudaQueue& on) {
    cuda::Launch(on.stream(), cuda::AverageKernel, {1, 1}, sums.as<const StepSums>(),
                 update.as<UpdateScalars>());
  });
}

void CudaOps::AddSquares(Queue& queue, const Tensor& row_sums, const Tensor& update,
                         const Tensor& sums, const Tensor& outcome) {
  const std::int64_t rows = row_sums.num_elems();
  RunOnCuda(queue, [&](CudaQueue& on) {
    constexpr int kParts = cuda::kSumBlocks;
    auto* const parts =
        reinterpret_cast<cuda::RowsPart*>(on.Scratch(kParts * sizeof(cuda::RowsPart)));
    if (parts == nullptr) return;
    cuda::Launch(on.stream(), cuda::SumRowsKernel, {kParts, cuda::kThreads},
                 row_sums.as<const double>(), rows, update.as<const UpdateScalars>(), parts);
    cuda::Launch(on.stream(), cuda::AddSquaresKernel, {1, 1}, parts, kParts, rows,
                 sums.as<StepSums>(), outcome.as<StepOutcome>());
  });
}

void CudaOps::DecideStep(Queue& queue, const StepRule& rule, const Tensor& sums,
                         const Tensor& has_failed, const Tensor& update, const Tensor& outcome) {
  RunOnCuda(queue, [&](CudaQueue& on) {
    cuda::Launch(on.stream(), cuda::DecideKernel, {1, 1}, rule, sums.as<const StepSums>(),
                 sums.as<const std::int64_t>() + kWordsOf<StepSums>,
                 sums.num_elems() - kWordsOf<StepSums>, has_failed.as<std::int64_t>(),
                 update.as<UpdateScalars>(), outcome.as<StepOutcome>());
  });
}

void CudaOps::EnterPhase(Queue& queue, StepPhase phase, const Tensor& times) {
  RunOnCuda(queue, [&](CudaQueue& on) {
    cuda::Launch(on.stream(), cuda::EnterPhaseKernel, {1, 1}, static_cast<std::int64_t>(phase),
                 times.as<PhaseTimes>());
  });
}

}  // namespace ckpt::trainer
