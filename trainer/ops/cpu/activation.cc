// Feed-forward activations, optionally multiplied by a routing weight per row.
#include <cmath>
#include <cstdint>
#include <numbers>

#include "core/base/check.h"
#include "trainer/device/cpu/host_device.h"
#include "trainer/device/cpu/lane_sum.h"
#include "trainer/ops/cpu/internal/exp.h"
#include "trainer/ops/cpu/internal/host_ops_impl.h"
#include "trainer/ops/cpu/internal/numeric.h"
#include "trainer/ops/cpu/internal/row_blocks.h"
#include "trainer/ops/cpu/internal/vector_loop.h"

namespace ckpt::trainer {
namespace {

// The shapes of a forward's x [rows, inner] and y [rows, outer].
struct ActivationShape {
  std::int64_t rows = 0;
  std::int64_t inner = 0;
  std::int64_t outer = 0;
};

ActivationShape ShapeOf(const Tensor& x, const Tensor& y, const Tensor& row_weights,
                        std::int64_t inner_per_outer) {
  CKPT_CHECK(x.dtype == y.dtype && y.ndim > 0 && x.num_elems() == y.num_elems() * inner_per_outer);
  const std::int64_t outer = y.dim(y.ndim - 1);
  const std::int64_t rows = outer == 0 ? 0 : y.num_elems() / outer;
  if (row_weights) {
    CKPT_CHECK(row_weights.num_elems() == rows);
    CKPT_CHECK(row_weights.dtype == StatisticsDType(x.dtype));
  }
  return {rows, outer * inner_per_outer, outer};
}

void CheckBackward(const Tensor& x, const Tensor& row_weights, const Tensor& dx,
                   const Tensor& drow_weights) {
  CKPT_CHECK(dx.dtype == x.dtype && dx.num_elems() == x.num_elems());
  CKPT_CHECK(static_cast<bool>(drow_weights) == static_cast<bool>(row_weights));
  if (!drow_weights) return;
  CKPT_CHECK(drow_weights.dtype == row_weights.dtype);
  CKPT_CHECK(drow_weights.num_elems() == row_weights.num_elems());
}

void CheckActivated(const Tensor& dy, const Tensor& activated) {
  CKPT_CHECK(!activated ||
             (activated.dtype == dy.dtype && activated.num_elems() == dy.num_elems()));
}

template <typename S>
S WeightOf(const Tensor& row_weights, std::int64_t row) {
  return row_weights ? row_weights.as<const S>()[row] : S{1};
}

template <typename S>
S Sigmoid(S x) {
  return S{1} / (S{1} + Exp(-x));
}

// Φ(x) and its derivative: the cumulative and the density function of the normal distribution.
template <typename S>
S NormalCdf(S x) {
  return S{0.5} * (S{1} + std::erf(x * static_cast<S>(std::numbers::sqrt2 / 2)));
}
template <typename S>
S NormalDensity(S x) {
  constexpr S kPeak = static_cast<S>(std::numbers::inv_sqrtpi * std::numbers::sqrt2 / 2);
  return kPeak * Exp(S{-0.5} * x * x);
}

}  // namespace

void HostOps::SwiGlu(Queue& queue, const Tensor& x, const ActivationRows& rows, const Tensor& y) {
  const ActivationShape shape = ShapeOf(x, y, rows.weights, 2);
  RunOn(queue, [this, x, rows, y, shape] {
    DispatchCompute(x.dtype, [&](auto tag) {
      using T = typename decltype(tag)::type;
      using S = Real<T>;
      const std::int64_t count = RowsInUse(rows.count, shape.rows);
      parallel_.For(count, GrainRows(shape.inner), [&](std::int64_t begin, std::int64_t end) {
        WithWidestVectors([&] {
          for (std::int64_t row = begin; row < end; ++row) {
            const auto* gate = x.as<const T>() + row * shape.inner;
            const auto* up = gate + shape.outer;
            auto* out = y.as<T>() + row * shape.outer;
            const S weight = WeightOf<S>(rows.weights, row);
            ForEach(0, shape.outer, [=](std::int64_t i) {
              const S g = Load(gate[i]);
              out[i] = Store<T>(g * Sigmoid(g) * Load(up[i]) * weight);
            });
          }
        });
      });
    });
  });
}

void HostOps::SwiGluBackward(Queue& queue, const Tensor& dy, const Tensor& x,
                             const ActivationRows& rows, const Tensor& dx,
                             const Tensor& drow_weights, const Tensor& activated) {
  const ActivationShape shape = ShapeOf(x, dy, rows.weights, 2);
  CheckBackward(x, rows.weights, dx, drow_weights);
  CheckActivated(dy, activated);
  RunOn(queue, [this, dy, x, rows, dx, drow_weights, activated, shape] {
    DispatchCompute(x.dtype, [&](auto tag) {
      using T = typename decltype(tag)::type;
      using S = Real<T>;
      const std::int64_t count = RowsInUse(rows.count, shape.rows);
      parallel_.For(count, GrainRows(shape.inner), [&](std::int64_t begin, std::int64_t end) {
        WithWidestVectors([&] {
          for (std::int64_t row = begin; row < end; ++row) {
            const auto* gate = x.as<const T>() + row * shape.inner;
            const auto* up = gate + shape.outer;
            const auto* dout = dy.as<const T>() + row * shape.outer;
            auto* dgate = dx.as<T>() + row * shape.inner;
            auto* dup = dgate + shape.outer;
            const S weight = WeightOf<S>(rows.weights, row);
            // Computed before dx, which may overwrite x.
            if (drow_weights) {
              drow_weights.as<S>()[row] = LaneSum<S>(shape.outer, [=](std::int64_t i) {
                const S g = Load(gate[i]);
                return Load(dout[i]) * (g * Sigmoid(g) * Load(up[i]));
              });
            }
            const auto slopes = [=](std::int64_t i) {
              const S g = Load(gate[i]);
              const S u = Load(up[i]);
              const S d = Load(dout[i]) * weight;
              const S sigmoid = Sigmoid(g);
              dgate[i] = Store<T>(d * u * (sigmoid * (S{1} + g * (S{1} - sigmoid))));
              dup[i] = Store<T>(d * (g * sigmoid));
              return g * sigmoid * u * weight;
            };
            if (!activated) {
              ForEach(0, shape.outer, slopes);
              continue;
            }
            auto* again = activated.as<T>() + row * shape.outer;
            ForEach(0, shape.outer, [=](std::int64_t i) { again[i] = Store<T>(slopes(i)); });
          }
        });
      });
    });
  });
}

void HostOps::Gelu(Queue& queue, const Tensor& x, const ActivationRows& rows, const Tensor& y) {
  const ActivationShape shape = ShapeOf(x, y, rows.weights, 1);
  RunOn(queue, [this, x, rows, y, shape] {
    DispatchCompute(x.dtype, [&](auto tag) {
      using T = typename decltype(tag)::type;
      using S = Real<T>;
      const std::int64_t count = RowsInUse(rows.count, shape.rows);
      parallel_.For(count, GrainRows(shape.inner), [&](std::int64_t begin, std::int64_t end) {
        for (std::int64_t row = begin; row < end; ++row) {
          const auto* in = x.as<const T>() + row * shape.inner;
          auto* out = y.as<T>() + row * shape.outer;
          const S weight = WeightOf<S>(rows.weights, row);
          ForEach(0, shape.outer, [=](std::int64_t i) {
            const S value = Load(in[i]);
            out[i] = Store<T>(value * NormalCdf(value) * weight);
          });
        }
      });
    });
  });
}

void HostOps::GeluBackward(Queue& queue, const Tensor& dy, const Tensor& x,
                           const ActivationRows& rows, const Tensor& dx, const Tensor& drow_weights,
                           const Tensor& activated) {
  const ActivationShape shape = ShapeOf(x, dy, rows.weights, 1);
  CheckBackward(x, rows.weights, dx, drow_weights);
  CheckActivated(dy, activated);
  RunOn(queue, [this, dy, x, rows, dx, drow_weights, activated, shape] {
    DispatchCompute(x.dtype, [&](auto tag) {
      using T = typename decltype(tag)::type;
      using S = Real<T>;
      const std::int64_t count = RowsInUse(rows.count, shape.rows);
      parallel_.For(count, GrainRows(shape.inner), [&](std::int64_t begin, std::int64_t end) {
        for (std::int64_t row = begin; row < end; ++row) {
          const auto* in = x.as<const T>() + row * shape.inner;
          const auto* dout = dy.as<const T>() + row * shape.outer;
          auto* din = dx.as<T>() + row * shape.inner;
          const S weight = WeightOf<S>(rows.weights, row);
          if (drow_weights) {
            drow_weights.as<S>()[row] = LaneSum<S>(shape.outer, [=](std::int64_t i) {
              const S value = Load(in[i]);
              return Load(dout[i]) * (value * NormalCdf(value));
            });
          }
          const auto slope = [=](std::int64_t i) {
            const S value = Load(in[i]);
            const S cdf = NormalCdf(value);
            din[i] = Store<T>(Load(dout[i]) * weight * (cdf + value * NormalDensity(value)));
            return value * cdf * weight;
          };
          if (!activated) {
            ForEach(0, shape.outer, slope);
            continue;
          }
          auto* again = activated.as<T>() + row * shape.outer;
          ForEach(0, shape.outer, [=](std::int64_t i) { again[i] = Store<T>(slope(i)); });
        }
      });
    });
  });
}

}  // namespace ckpt::trainer
