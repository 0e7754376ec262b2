// Optimizer updates, and the sums of squares of gradients. Compiled without fused
// multiply-adds: an update gives the bits that the CPU gives.
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <span>
#include <type_traits>

#include "core/base/check.h"
#include "trainer/device/cuda/row_squares.cuh"
#include "trainer/device/cuda/run_batch.cuh"
#include "trainer/ops/cuda/cuda_ops_impl.h"
#include "trainer/ops/cuda/kernel.cuh"

namespace ckpt::trainer {
namespace cuda {
namespace {

// A thread updates four elements: more were slower on an H200.
constexpr int kUpdateWidth = 4;

// A GradientSum as kernels read it.
template <typename T>
struct OneTerm {
  const T* sums = nullptr;

  template <int kWidth>
  __device__ __forceinline__ void LoadSums(std::int64_t pack, float (&to)[kWidth]) const {
    Unpack(LoadPack<kWidth>(sums, pack), to);
  }
};
struct TwoTerms {
  const Bf16* first = nullptr;
  const Bf16* second = nullptr;

  template <int kWidth>
  __device__ __forceinline__ void LoadSums(std::int64_t pack, float (&to)[kWidth]) const {
    const auto a = LoadPack<kWidth>(first, pack);
    const auto b = LoadPack<kWidth>(second, pack);
#pragma unroll
    for (int i = 0; i < kWidth; ++i) to[i] = Load(a.values[i]) + Load(b.values[i]);
  }
};

// Calls `body` with the terms of a gradient.
template <typename Body>
void DispatchTerms(const GradientSum& gradient, const Body& body) {
  const auto& [first, second] = gradient;
  if (second) return body(TwoTerms{first.as<const Bf16>(), second.as<const Bf16>()});
  Dispatch(first.dtype, [&](auto tag) {
    using T = typename decltype(tag)::type;
    body(OneTerm<T>{first.as<const T>()});
  });
}

// WeightCopies as kernels write them. Stores to the other rank's memory cross the link while the
// update reads and writes its own, so nothing is copied afterwards.
template <typename C>
struct Copies {
  C* own = nullptr;
  C* other = nullptr;

  explicit Copies(const WeightCopies& copies)
      : own(copies.own.as<C>()), other(copies.other.as<C>()) {}

  template <int kWidth>
  __device__ __forceinline__ void Write(std::int64_t pack, const Pack<C, kWidth>& weights) const {
    if (own != nullptr) StorePack(own, pack, weights);
    if (other != nullptr) StorePack(other, pack, weights);
  }
};

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

template <int kWidth, typename Terms, typename C>
__global__ void AdamWKernel(AdamWForm form, const UpdateScalars* scalars, Terms gradient,
                            float* main, float* exp_avg, float* exp_avg_sq, Copies<C> copies,
                            std::int64_t packs) {
  AwaitEarlier();
  const std::int64_t p = static_cast<std::int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
  if (p >= packs || scalars->skip != 0) return;
  const AdamWScalars update(form, *scalars);
  float sums[kWidth];
  gradient.LoadSums(p, sums);
  auto weights = LoadPack<kWidth>(main, p);
  auto averages = LoadPack<kWidth>(exp_avg, p);
  auto squares = LoadPack<kWidth>(exp_avg_sq, p);
  Pack<C, kWidth> rounded;
#pragma unroll
  for (int i = 0; i < kWidth; ++i) {
    update(sums[i], weights.values[i], averages.values[i], squares.values[i]);
    rounded.values[i] = Store<C>(weights.values[i]);
  }
  StorePack(main, p, weights);
  StorePack(exp_avg, p, averages);
  StorePack(exp_avg_sq, p, squares);
  copies.Write(p, rounded);
}

template <typename Terms, typename C>
__global__ void SgdKernel(SgdForm form, const UpdateScalars* scalars, Terms gradient, float* main,
                          float* momentum, Copies<C> copies, std::int64_t elems) {
  AwaitEarlier();
  const std::int64_t i = static_cast<std::int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
  if (i >= elems || scalars->skip != 0) return;
  const GradientScale scaled(*scalars);
  float sum[1];
  gradient.LoadSums(i, sum);
  float step = scaled(sum[0]) + static_cast<float>(form.weight_decay) * main[i];
  if (momentum != nullptr) {
    step = momentum[i] * static_cast<float>(form.momentum) + step;
    momentum[i] = step;
  }
  main[i] += static_cast<float>(-scalars->lr) * step;
  copies.Write(i, Pack<C, 1>{Store<C>(main[i])});
}

// Rows of an array that are squared.
template <typename T>
struct SquaresRun {
  const T* x = nullptr;
  const T* other = nullptr;  // the second term of each element, or null
  double* sums = nullptr;
  std::int64_t rows = 0;
  std::int64_t columns = 0;
  std::int64_t end = 0;  // warps of the batch
  bool fits_packs = false;
};

// Rows that a warp squares side by side, and blocks of a multiprocessor: the best of one to four
// rows on an H200, with as many registers as five blocks leave.
constexpr int kRowsOfWarp = 2;
constexpr int kSquareBlocks = 5;

// Sums of the rows that follow `first`, of what this thread of a warp reads of each.
template <int kWidth, typename Terms>
__device__ __forceinline__ void AddSquares(const Terms& first, std::int64_t columns, int num_rows,
                                           double (&sums)[kRowsOfWarp]) {
  const std::int64_t packs = columns / kWidth;
  for (std::int64_t p = threadIdx.x % kWarp; p < packs; p += kWarp) {
    float values[kRowsOfWarp][kWidth] = {};
#pragma unroll
    for (int r = 0; r < kRowsOfWarp; ++r) {
      if (r < num_rows) first.LoadSums(r * packs + p, values[r]);
    }
#pragma unroll
    for (int r = 0; r < kRowsOfWarp; ++r) AddSquaresOf(values[r], sums[r]);
  }
}

// A warp for kRowsOfWarp rows of a run.
template <typename T>
__global__ void __launch_bounds__(kThreads, kSquareBlocks)
    SumSquaresKernel(const __grid_constant__ RunBatch<SquaresRun<T>> batch) {
  AwaitEarlier();
  const std::int64_t place =
      (static_cast<std::int64_t>(blockIdx.x) * kThreads + threadIdx.x) / kWarp;
  if (place >= batch.End()) return;
  const int index = batch.RunOf(place);
  const auto& run = batch.runs[index];
  const std::int64_t row = (place - batch.Begin(index)) * kRowsOfWarp;
  const auto num_rows = static_cast<int>(min(run.rows - row, std::int64_t{kRowsOfWarp}));
  const std::int64_t first = row * run.columns;
  double sums[kRowsOfWarp] = {};
  const auto add_squares = [&](const auto& terms) {
    run.fits_packs ? AddSquares<kPackWidth>(terms, run.columns, num_rows, sums)
                   : AddSquares<1>(terms, run.columns, num_rows, sums);
  };
  if constexpr (std::is_same_v<T, Bf16>) {
    run.other == nullptr ? add_squares(OneTerm<T>{run.x + first})
                         : add_squares(TwoTerms{run.x + first, run.other + first});
  } else {
    add_squares(OneTerm<T>{run.x + first});
  }
#pragma unroll
  for (int r = 0; r < kRowsOfWarp; ++r) {
    const double sum = SumOfWarp(sums[r]);
    if (r < num_rows && threadIdx.x % kWarp == 0) run.sums[row + r] = sum;
  }
}

// Launches as many batches as the arrays need, which all have elements of T.
template <typename T>
void SquareAll(cudaStream_t stream, std::span<const RowSquares> all) {
  RunBatch<SquaresRun<T>> batch;
  const auto launch = [&] {
    const std::int64_t warps = batch.End();
    if (warps > 0) {
      Launch(stream, SumSquaresKernel<T>, {Blocks(warps, kThreads / kWarp), kThreads}, batch);
    }
    batch.num_runs = 0;
  };
  for (const auto& [x, sums] : all) {
    if (batch.is_full()) launch();
    const std::int64_t rows = sums.num_elems();
    if (rows == 0) continue;
    const std::int64_t columns = x.num_elems() / rows;
    const std::int64_t warps = (rows + kRowsOfWarp - 1) / kRowsOfWarp;
    const std::int64_t end = batch.End() + warps;
    batch.runs[batch.num_runs++] = {
        .x = x.first.as<const T>(),
        .other = x.second.as<const T>(),
        .sums = sums.as<double>(),
        .rows = rows,
        .columns = columns,
        .end = end,
        .fits_packs = FitsPacks(columns, {x.first.data, x.second.data})};
  }
  launch();
}

void CheckState(const Tensor& main, const Tensor& state) {
  CKPT_CHECK(state.dtype == DType::kFloat32 && state.num_elems() == main.num_elems());
}

// The dtype of compute weights; without them any.
DType ComputeDType(const Tensor& compute) { return compute ? compute.dtype : DType::kFloat32; }

}  // namespace
}  // namespace cuda

void CudaOps::AdamW(Queue& queue, const AdamWForm& form, const Tensor& update,
                    const GradientSum& gradient, const Tensor& main, const Tensor& exp_avg,
                    const Tensor& exp_avg_sq, const WeightCopies& copies) {
  for (const Tensor& state : {main, exp_avg, exp_avg_sq}) cuda::CheckState(main, state);
  CKPT_CHECK(gradient.num_elems() == main.num_elems());
  CKPT_CHECK(!copies.own || copies.own.num_elems() == main.num_elems());
  if (main.num_elems() == 0) return;
  RunOnCuda(queue, [&](CudaQueue& on) {
    cuda::DispatchTerms(gradient, [&](const auto& terms) {
      cuda::Dispatch(cuda::ComputeDType(copies.own), [&](auto compute_tag) {
        using Terms = std::decay_t<decltype(terms)>;
        using C = typename decltype(compute_tag)::type;
        const std::int64_t elems = main.num_elems();
        const auto run = [&](auto width) {
          constexpr int kWidth = decltype(width)::kWidth;
          const std::int64_t packs = elems / kWidth;
          cuda::Launch(on.stream(), cuda::AdamWKernel<kWidth, Terms, C>,
                       {cuda::Blocks(packs, cuda::kThreads), cuda::kThreads}, form,
                       update.as<const UpdateScalars>(), terms, main.as<float>(),
                       exp_avg.as<float>(), exp_avg_sq.as<float>(), cuda::Copies<C>(copies), packs);
        };
        if (cuda::FitsPacks(elems,
                            {gradient.first.data, gradient.second.data, main.data, exp_avg.data,
                             exp_avg_sq.data, copies.own.data, copies.other.data})) {
          return run(cuda::WidthTag<cuda::kUpdateWidth>{});
        }
        run(cuda::WidthTag<1>{});
      });
    });
  });
}

void CudaOps::Sgd(Queue& queue, const SgdForm& form, const Tensor& update,
                  const GradientSum& gradient, const Tensor& main, const Tensor& momentum,
                  const WeightCopies& copies) {
  cuda::CheckState(main, main);
  CKPT_CHECK(gradient.num_elems() == main.num_elems());
  CKPT_CHECK(momentum || form.momentum == 0);
  if (momentum) cuda::CheckState(main, momentum);
  CKPT_CHECK(!copies.own || copies.own.num_elems() == main.num_elems());
  if (main.num_elems() == 0) return;
  RunOnCuda(queue, [&](CudaQueue& on) {
    cuda::DispatchTerms(gradient, [&](const auto& terms) {
      cuda::Dispatch(cuda::ComputeDType(copies.own), [&](auto compute_tag) {
        using Terms = std::decay_t<decltype(terms)>;
        using C = typename decltype(compute_tag)::type;
        cuda::Launch(on.stream(), cuda::SgdKernel<Terms, C>,
                     {cuda::Blocks(main.num_elems(), cuda::kThreads), cuda::kThreads}, form,
                     update.as<const UpdateScalars>(), terms, main.as<float>(),
                     momentum.as<float>(), cuda::Copies<C>(copies), main.num_elems());
      });
    });
  });
}

void CudaOps::SumSquares(Queue& queue, std::span<const RowSquares> all) {
  for (const auto& [x, sums] : all) {
    CKPT_CHECK(sums.dtype == DType::kFloat64);
    const Tensor& rows = x.first;
    CKPT_CHECK(sums.num_elems() == 0 || (rows.ndim > 0 && rows.dim(0) == sums.num_elems()));
  }
  RunOnCuda(queue, [&](CudaQueue& on) {
    for (auto first = all.begin(); first != all.end();) {
      const DType dtype = first->x.first.dtype;
      const auto last = std::find_if(first, all.end(), [dtype](const RowSquares& rows) {
        return rows.x.first.dtype != dtype;
      });
      cuda::Dispatch(dtype, [&](auto tag) {
        cuda::SquareAll<typename decltype(tag)::type>(on.stream(), {first, last});
      });
      first = last;
    }
  });
}

}  // namespace ckpt::trainer
