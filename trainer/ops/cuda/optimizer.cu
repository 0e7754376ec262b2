// Optimizer updates, and the sums of squares of gradients. Compiled without fused
// multiply-adds: an update gives the bits that the CPU gives.
#include <cmath>
#include <cstdint>

#include "core/base/check.h"
#include "trainer/ops/cuda/cuda_ops_impl.h"
#include "trainer/ops/cuda/kernel.cuh"

namespace ckpt::trainer {
namespace cuda {
namespace {

// A thread updates four elements: more were slower on an H200.
constexpr int kUpdateWidth = 4;

// A sum of gradients as an update uses it: averaged and clipped.
struct GradientScale {
  float scale = 1;
  float clip = 1;

  __device__ explicit GradientScale(const UpdateScalars& update)
      : scale(static_cast<float>(update.scale)), clip(static_cast<float>(update.clip)) {}
  __device__ float operator()(float sum) const { return sum * scale * clip; }
};

// The scalars of an AdamW step, rounded as torch.optim.AdamW rounds them.
struct AdamWScalars {
  __device__ AdamWScalars(const AdamWForm& form, const UpdateScalars& update)
      : gradient(update),
        keep(static_cast<float>(form.decoupled ? 1 - update.lr * form.weight_decay : 1)),
        decay(static_cast<float>(form.decoupled ? 0 : form.weight_decay)),
        rate1(static_cast<float>(1 - form.beta1)),
        beta2(static_cast<float>(form.beta2)),
        rate2(static_cast<float>(1 - form.beta2)),
        root_correction2(static_cast<float>(update.root_correction2)),
        step_size(static_cast<float>(-update.lr / update.correction1)),
        eps(static_cast<float>(form.eps)) {}

  GradientScale gradient;
  float keep = 1;   // of the weight, after decoupled decay
  float decay = 0;  // coupled decay
  float rate1 = 0;  // 1 - beta1
  float beta2 = 0;
  float rate2 = 0;
  float root_correction2 = 1;
  float step_size = 0;
  float eps = 0;

  __device__ void operator()(float sum, float& weight, float& average, float& square) const {
    const float g = gradient(sum) + decay * weight;
    average = average + rate1 * (g - average);
    square = square * beta2 + rate2 * g * g;
    weight = weight * keep + step_size * average / (sqrtf(square) / root_correction2 + eps);
  }
};

template <int kWidth, typename G, typename C>
__global__ void AdamWKernel(AdamWForm form, const UpdateScalars* scalars, const G* gradient,
                            float* main, float* exp_avg, float* exp_avg_sq, C* compute,
                            std::int64_t packs) {
  AwaitEarlier();
  const std::int64_t p = static_cast<std::int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
  if (p >= packs || scalars->skip != 0) return;
  const AdamWScalars update(form, *scalars);
  const auto g = LoadPack<kWidth>(gradient, p);
  auto weights = LoadPack<kWidth>(main, p);
  auto averages = LoadPack<kWidth>(exp_avg, p);
  auto squares = LoadPack<kWidth>(exp_avg_sq, p);
  Pack<C, kWidth> rounded;
#pragma unroll
  for (int i = 0; i < kWidth; ++i) {
    update(Load(g.values[i]), weights.values[i], averages.values[i], squares.values[i]);
    rounded.values[i] = Store<C>(weights.values[i]);
  }
  StorePack(main, p, weights);
  StorePack(exp_avg, p, averages);
  StorePack(exp_avg_sq, p, squares);
  if (compute != nullptr) StorePack(compute, p, rounded);
}

template <typename G, typename C>
__global__ void SgdKernel(SgdForm form, const UpdateScalars* scalars, const G* gradient,
                          float* main, float* momentum, C* compute, std::int64_t elems) {
  AwaitEarlier();
  const std::int64_t i = static_cast<std::int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
  if (i >= elems || scalars->skip != 0) return;
  const GradientScale scaled(*scalars);
  float step = scaled(Load(gradient[i])) + static_cast<float>(form.weight_decay) * main[i];
  if (momentum != nullptr) {
    step = momentum[i] * static_cast<float>(form.momentum) + step;
    momentum[i] = step;
  }
  main[i] += static_cast<float>(-scalars->lr) * step;
  if (compute != nullptr) compute[i] = Store<C>(main[i]);
}

// A warp for each row; a thread adds in its own order, then the warp in a fixed one.
template <int kWidth, typename T>
__global__ void SumSquaresKernel(const T* x, const UpdateScalars* scalars, std::int64_t rows,
                                 std::int64_t packs, double* sums) {
  AwaitEarlier();
  const std::int64_t row = (static_cast<std::int64_t>(blockIdx.x) * kThreads + threadIdx.x) / kWarp;
  if (row >= rows) return;
  const auto scale = static_cast<float>(scalars->scale);
  double sum = 0;
  for (std::int64_t p = threadIdx.x % kWarp; p < packs; p += kWarp) {
    const auto pack = LoadPack<kWidth>(x, row * packs + p);
#pragma unroll
    for (const T& value : pack.values) {
      const double scaled = Load(value) * scale;
      sum += scaled * scaled;
    }
  }
#pragma unroll
  for (int distance = kWarp / 2; distance > 0; distance /= 2) {
    sum += __shfl_xor_sync(0xFFFFFFFFU, sum, distance);
  }
  if (threadIdx.x % kWarp == 0) sums[row] = sum;
}

void CheckState(const Tensor& main, const Tensor& state) {
  CKPT_CHECK(state.dtype == DType::kFloat32 && state.num_elems() == main.num_elems());
}

// The dtype of compute weights; without them any.
DType ComputeDType(const Tensor& compute) { return compute ? compute.dtype : DType::kFloat32; }

}  // namespace
}  // namespace cuda

void CudaOps::AdamW(Queue& queue, const AdamWForm& form, const Tensor& update,
                    const Tensor& gradient, const Tensor& main, const Tensor& exp_avg,
                    const Tensor& exp_avg_sq, const Tensor& compute) {
  for (const Tensor& state : {main, exp_avg, exp_avg_sq}) cuda::CheckState(main, state);
  CKPT_CHECK(gradient.num_elems() == main.num_elems());
  CKPT_CHECK(!compute || compute.num_elems() == main.num_elems());
  if (main.num_elems() == 0) return;
  RunOnCuda(queue, [&](CudaQueue& on) {
    cuda::Dispatch(gradient.dtype, [&](auto gradient_tag) {
      cuda::Dispatch(cuda::ComputeDType(compute), [&](auto compute_tag) {
        using G = typename decltype(gradient_tag)::type;
        using C = typename decltype(compute_tag)::type;
        const std::int64_t elems = main.num_elems();
        const auto run = [&](auto width) {
          constexpr int kWidth = decltype(width)::kWidth;
          const std::int64_t packs = elems / kWidth;
          cuda::Launch(on.stream(), cuda::AdamWKernel<kWidth, G, C>,
                       {cuda::Blocks(packs, cuda::kThreads), cuda::kThreads}, form,
                       update.as<const UpdateScalars>(), gradient.as<const G>(), main.as<float>(),
                       exp_avg.as<float>(), exp_avg_sq.as<float>(), compute.as<C>(), packs);
        };
        if (cuda::FitsPacks(
                elems, {gradient.data, main.data, exp_avg.data, exp_avg_sq.data, compute.data})) {
          return run(cuda::WidthTag<cuda::kUpdateWidth>{});
        }
        run(cuda::WidthTag<1>{});
      });
    });
  });
}

void CudaOps::Sgd(Queue& queue, const SgdForm& form, const Tensor& update, const Tensor& gradient,
                  const Tensor& main, const Tensor& momentum, const Tensor& compute) {
  cuda::CheckState(main, main);
  CKPT_CHECK(gradient.num_elems() == main.num_elems());
  CKPT_CHECK(momentum || form.momentum == 0);
  if (momentum) cuda::CheckState(main, momentum);
  CKPT_CHECK(!compute || compute.num_elems() == main.num_elems());
  if (main.num_elems() == 0) return;
  RunOnCuda(queue, [&](CudaQueue& on) {
    cuda::Dispatch(gradient.dtype, [&](auto gradient_tag) {
      cuda::Dispatch(cuda::ComputeDType(compute), [&](auto compute_tag) {
        using G = typename decltype(gradient_tag)::type;
        using C = typename decltype(compute_tag)::type;
        cuda::Launch(on.stream(), cuda::SgdKernel<G, C>,
                     {cuda::Blocks(main.num_elems(), cuda::kThreads), cuda::kThreads}, form,
                     update.as<const UpdateScalars>(), gradient.as<const G>(), main.as<float>(),
                     momentum.as<float>(), compute.as<C>(), main.num_elems());
      });
    });
  });
}

void CudaOps::SumSquares(Queue& queue, const Tensor& x, const Tensor& update,
                         const Tensor& row_sums) {
  const std::int64_t rows = row_sums.num_elems();
  CKPT_CHECK(row_sums.dtype == DType::kFloat64);
  CKPT_CHECK(rows == 0 || (x.ndim > 0 && x.dim(0) == rows));
  if (rows == 0) return;
  RunOnCuda(queue, [&](CudaQueue& on) {
    cuda::Dispatch(x.dtype, [&](auto tag) {
      using T = typename decltype(tag)::type;
      const std::int64_t columns = x.num_elems() / rows;
      cuda::DispatchWidth(columns, {x.data}, [&](auto width) {
        constexpr int kWidth = decltype(width)::kWidth;
        cuda::Launch(on.stream(), cuda::SumSquaresKernel<kWidth, T>,
                     {cuda::Blocks(rows, cuda::kThreads / cuda::kWarp), cuda::kThreads},
                     x.as<const T>(), update.as<const UpdateScalars>(), rows, columns / kWidth,
                     row_sums.as<double>());
      });
    });
  });
}

}  // namespace ckpt::trainer
