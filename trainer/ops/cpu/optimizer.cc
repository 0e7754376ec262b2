// Optimizer updates, and the sums of squares of gradients.
#include <cmath>
#include <cstdint>
#include <type_traits>

#include "core/base/check.h"
#include "trainer/device/cpu/host_device.h"
#include "trainer/device/cpu/lane_sum.h"
#include "trainer/ops/cpu/internal/host_ops_impl.h"
#include "trainer/ops/cpu/internal/numeric.h"
#include "trainer/ops/cpu/internal/row_blocks.h"
#include "trainer/ops/cpu/internal/vector_loop.h"

namespace ckpt::trainer {
namespace {

void CheckState(const Tensor& main, const Tensor& state) {
  CKPT_CHECK(state.dtype == DType::kFloat32 && state.num_elems() == main.num_elems());
}

// A gradient sum as a number, rounded to the compute type.
template <typename T>
Real<T> Sum(T sum) {
  return Load(sum);
}
float Sum(std::int64_t sum) { return static_cast<float>(FromFixedPoint(sum)); }

// Element i of a GradientSum.
template <typename T>
struct OneTerm {
  const T* sums = nullptr;

  auto operator()(std::int64_t i) const { return Sum(sums[i]); }
};
struct TwoTerms {
  const Bf16* first = nullptr;
  const Bf16* second = nullptr;

  float operator()(std::int64_t i) const { return Sum(first[i]) + Sum(second[i]); }
};

// Calls `body` with the terms of a gradient.
template <typename Body>
void DispatchTerms(const GradientSum& gradient, const Body& body) {
  const auto& [first, second] = gradient;
  if (second) return body(TwoTerms{first.as<const Bf16>(), second.as<const Bf16>()});
  DispatchGradient(first.dtype, [&](auto tag) {
    using T = typename decltype(tag)::type;
    body(OneTerm<T>{first.as<const T>()});
  });
}

// Element i of the gradient that an update uses: its sum, averaged and clipped.
template <typename Terms>
struct ScaledGradient {
  Terms sum;
  float scale = 1;
  float clip = 1;

  float operator()(std::int64_t i) const { return static_cast<float>(sum(i)) * scale * clip; }
};

// Calls `body` with a ScaledGradient of the gradient's terms.
template <typename Body>
void DispatchScaled(const GradientSum& gradient, const UpdateScalars& scalars, const Body& body) {
  DispatchTerms(gradient, [&](const auto& terms) {
    body(ScaledGradient<std::decay_t<decltype(terms)>>{terms, static_cast<float>(scalars.scale),
                                                       static_cast<float>(scalars.clip)});
  });
}

// compute[begin … end) = main, cast; nothing if `compute` is null. It runs right after the update,
// while the weights are still in the cache.
void CastWeights(const float* main, const Tensor& compute, std::int64_t begin, std::int64_t end) {
  if (!compute) return;
  DispatchCompute(compute.dtype, [&](auto tag) {
    using T = typename decltype(tag)::type;
    auto* to = compute.as<T>();
    ForEach(begin, end, [=](std::int64_t i) { to[i] = Store<T>(main[i]); });
  });
}

}  // namespace

void HostOps::AdamW(Queue& queue, const AdamWForm& form, const Tensor& update,
                    const GradientSum& gradient, const Tensor& main, const Tensor& exp_avg,
                    const Tensor& exp_avg_sq, const WeightCopies& copies) {
  for (const Tensor& state : {main, exp_avg, exp_avg_sq}) CheckState(main, state);
  CKPT_CHECK(gradient.num_elems() == main.num_elems());
  CKPT_CHECK(!copies.own || copies.own.num_elems() == main.num_elems());
  RunOn(queue, [this, form, update, gradient, main, exp_avg, exp_avg_sq, copies] {
    const UpdateScalars& scalars = *update.as<const UpdateScalars>();
    if (scalars.skip != 0) return;
    // The order of operations, and which scalars are rounded to float, are the same as in
    // torch.optim.AdamW.
    const auto root_correction2 = static_cast<float>(scalars.root_correction2);
    const auto step_size = static_cast<float>(-scalars.lr / scalars.correction1);
    const auto keep = static_cast<float>(form.decoupled ? 1 - scalars.lr * form.weight_decay : 1);
    const auto decay = static_cast<float>(form.decoupled ? 0 : form.weight_decay);
    const auto rate1 = static_cast<float>(1 - form.beta1);
    const auto beta2 = static_cast<float>(form.beta2);
    const auto rate2 = static_cast<float>(1 - form.beta2);
    const auto eps = static_cast<float>(form.eps);
    auto* weights = main.as<float>();
    auto* averages = exp_avg.as<float>();
    auto* squares = exp_avg_sq.as<float>();
    DispatchScaled(gradient, scalars, [&](const auto& scaled) {
      parallel_.For(main.num_elems(), kGrainElems, [&](std::int64_t begin, std::int64_t end) {
        WithWidestVectors([&] {
          ForEach(begin, end, [=](std::int64_t i) {
            const float weight = weights[i] * keep;
            const float g = scaled(i) + decay * weights[i];
            const float average = averages[i] + rate1 * (g - averages[i]);
            const float square = squares[i] * beta2 + rate2 * g * g;
            averages[i] = average;
            squares[i] = square;
            weights[i] =
                weight + step_size * average / (std::sqrt(square) / root_correction2 + eps);
          });
          CastWeights(weights, copies.own, begin, end);
          CastWeights(weights, copies.other, begin, end);
        });
      });
    });
  });
}

void HostOps::Sgd(Queue& queue, const SgdForm& form, const Tensor& update,
                  const GradientSum& gradient, const Tensor& main, const Tensor& momentum,
                  const WeightCopies& copies) {
  CheckState(main, main);
  CKPT_CHECK(gradient.num_elems() == main.num_elems());
  CKPT_CHECK(momentum || form.momentum == 0);
  if (momentum) CheckState(main, momentum);
  CKPT_CHECK(!copies.own || copies.own.num_elems() == main.num_elems());
  RunOn(queue, [this, form, update, gradient, main, momentum, copies] {
    const UpdateScalars& scalars = *update.as<const UpdateScalars>();
    if (scalars.skip != 0) return;
    const auto lr = static_cast<float>(-scalars.lr);
    const auto decay = static_cast<float>(form.weight_decay);
    const auto keep = static_cast<float>(form.momentum);
    auto* weights = main.as<float>();
    auto* velocities = momentum.as<float>();
    DispatchScaled(gradient, scalars, [&](const auto& scaled) {
      parallel_.For(main.num_elems(), kGrainElems, [&](std::int64_t begin, std::int64_t end) {
        WithWidestVectors([&] {
          if (velocities != nullptr) {
            ForEach(begin, end, [=](std::int64_t i) {
              velocities[i] = velocities[i] * keep + (scaled(i) + decay * weights[i]);
              weights[i] += lr * velocities[i];
            });
          } else {
            ForEach(begin, end,
                    [=](std::int64_t i) { weights[i] += lr * (scaled(i) + decay * weights[i]); });
          }
          CastWeights(weights, copies.own, begin, end);
          CastWeights(weights, copies.other, begin, end);
        });
      });
    });
  });
}

void HostOps::SumSquares(Queue& queue, std::span<const RowSquares> all) {
  for (const auto& [x, sums] : all) {
    const std::int64_t rows = sums.num_elems();
    CKPT_CHECK(sums.dtype == DType::kFloat64);
    CKPT_CHECK(rows == 0 || (x.first.ndim > 0 && x.first.dim(0) == rows));
    RunOn(queue, [this, x, sums, rows] {
      const std::int64_t columns = rows == 0 ? 0 : x.num_elems() / rows;
      auto* sum = sums.as<double>();
      DispatchTerms(x, [&](const auto& terms) {
        parallel_.For(rows, GrainRows(columns), [&](std::int64_t begin, std::int64_t end) {
          WithWidestVectors([=] {
            for (std::int64_t row = begin; row < end; ++row) {
              sum[row] = LaneSum<double>(columns, [=](std::int64_t i) {
                const auto value = static_cast<double>(terms(row * columns + i));
                return value * value;
              });
            }
          });
        });
      });
    });
  }
}

}  // namespace ckpt::trainer
