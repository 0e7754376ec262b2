// Optimizer updates and the sums of squares that gradients are clipped by.
#include <cmath>
#include <cstdint>

#include "core/base/check.h"
#include "trainer/device/host_device.h"
#include "trainer/ops/cpu/host_ops_impl.h"
#include "trainer/ops/cpu/numeric.h"
#include "trainer/ops/cpu/row_blocks.h"
#include "trainer/ops/cpu/vector_loop.h"

namespace ckpt::trainer {
namespace {

void CheckState(const Tensor& main, const Tensor& state) {
  CKPT_CHECK(state.dtype == DType::kFloat32 && state.num_elems() == main.num_elems());
}

// compute[begin … end) = main, cast; of a null tensor nothing. Right after the update, while the weights are in the cache.
void CastWeights(const float* main, const Tensor& compute, std::int64_t begin, std::int64_t end) {
  if (!compute) return;
  DispatchCompute(compute.dtype, [&](auto tag) {
    using T = typename decltype(tag)::type;
    auto* to = compute.as<T>();
    ForEach(begin, end, [=](std::int64_t i) { to[i] = Store<T>(main[i]); });
  });
}

}  // namespace

void HostOps::AdamW(Queue& queue, const AdamWStep& step, const Tensor& gradient, const Tensor& main,
                    const Tensor& exp_avg, const Tensor& exp_avg_sq, const Tensor& compute) {
  for (const Tensor& state : {gradient, main, exp_avg, exp_avg_sq}) CheckState(main, state);
  CKPT_CHECK(!compute || compute.num_elems() == main.num_elems());
  RunOn(queue, [this, step, gradient, main, exp_avg, exp_avg_sq, compute] {
    // The order of operations, and which scalars are rounded to float, is that of torch.optim.AdamW.
    const auto steps = static_cast<double>(step.step);
    const double correction1 = 1 - std::pow(step.beta1, steps);
    const auto root_correction2 = static_cast<float>(std::sqrt(1 - std::pow(step.beta2, steps)));
    const auto step_size = static_cast<float>(-step.lr / correction1);
    const auto keep = static_cast<float>(step.decoupled ? 1 - step.lr * step.weight_decay : 1);
    const auto decay = static_cast<float>(step.decoupled ? 0 : step.weight_decay);
    const auto rate1 = static_cast<float>(1 - step.beta1);
    const auto beta2 = static_cast<float>(step.beta2);
    const auto rate2 = static_cast<float>(1 - step.beta2);
    const auto eps = static_cast<float>(step.eps);
    const auto* gradients = gradient.as<const float>();
    auto* weights = main.as<float>();
    auto* averages = exp_avg.as<float>();
    auto* squares = exp_avg_sq.as<float>();
    parallel_.For(main.num_elems(), kGrainElems, [&](std::int64_t begin, std::int64_t end) {
      WithWidestVectors([&] {
        ForEach(begin, end, [=](std::int64_t i) {
          const float weight = weights[i] * keep;
          const float g = gradients[i] + decay * weights[i];
          const float average = averages[i] + rate1 * (g - averages[i]);
          const float square = squares[i] * beta2 + rate2 * g * g;
          averages[i] = average;
          squares[i] = square;
          weights[i] = weight + step_size * average / (std::sqrt(square) / root_correction2 + eps);
        });
        CastWeights(weights, compute, begin, end);
      });
    });
  });
}

void HostOps::Sgd(Queue& queue, const SgdStep& step, const Tensor& gradient, const Tensor& main,
                  const Tensor& momentum, const Tensor& compute) {
  for (const Tensor& state : {gradient, main}) CheckState(main, state);
  CKPT_CHECK(momentum || step.momentum == 0);
  if (momentum) CheckState(main, momentum);
  CKPT_CHECK(!compute || compute.num_elems() == main.num_elems());
  RunOn(queue, [this, step, gradient, main, momentum, compute] {
    const auto lr = static_cast<float>(-step.lr);
    const auto decay = static_cast<float>(step.weight_decay);
    const auto keep = static_cast<float>(step.momentum);
    const auto* gradients = gradient.as<const float>();
    auto* weights = main.as<float>();
    auto* velocities = momentum.as<float>();
    parallel_.For(main.num_elems(), kGrainElems, [&](std::int64_t begin, std::int64_t end) {
      WithWidestVectors([&] {
        if (velocities != nullptr) {
          ForEach(begin, end, [=](std::int64_t i) {
            velocities[i] = velocities[i] * keep + (gradients[i] + decay * weights[i]);
            weights[i] += lr * velocities[i];
          });
        } else {
          ForEach(begin, end,
                  [=](std::int64_t i) { weights[i] += lr * (gradients[i] + decay * weights[i]); });
        }
        CastWeights(weights, compute, begin, end);
      });
    });
  });
}

void HostOps::SumSquares(Queue& queue, const Tensor& x, const Tensor& sums) {
  const std::int64_t rows = sums.num_elems();
  CKPT_CHECK(sums.dtype == DType::kFloat64);
  CKPT_CHECK(rows == 0 || (x.ndim > 0 && x.dim(0) == rows));
  RunOn(queue, [this, x, sums, rows] {
    const std::int64_t columns = rows == 0 ? 0 : x.num_elems() / rows;
    auto* sum = sums.as<double>();
    DispatchCompute(x.dtype, [&](auto tag) {
      using T = typename decltype(tag)::type;
      parallel_.For(rows, GrainRows(columns), [&](std::int64_t begin, std::int64_t end) {
        WithWidestVectors([=] {
          for (std::int64_t row = begin; row < end; ++row) {
            const auto* in = x.as<const T>() + row * columns;
            sum[row] = LaneSum<double>(columns, [=](std::int64_t i) {
              const auto value = static_cast<double>(Load(in[i]));
              return value * value;
            });
          }
        });
      });
    });
  });
}

}  // namespace ckpt::trainer
