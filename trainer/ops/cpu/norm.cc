// RMSNorm and LayerNorm over the last dim.
//
// Let x̂ be the normalised row and g = w·dy. For RMSNorm dx = rstd·(g - x̂·mean(g·x̂)), as
// row_kernels.h computes; LayerNorm also subtracts rstd·mean(g).
#include <cmath>
#include <cstdint>

#include "core/base/check.h"
#include "trainer/device/cpu/host_device.h"
#include "trainer/device/cpu/lane_sum.h"
#include "trainer/ops/cpu/internal/host_ops_impl.h"
#include "trainer/ops/cpu/internal/numeric.h"
#include "trainer/ops/cpu/internal/row_blocks.h"
#include "trainer/ops/cpu/internal/row_kernels.h"
#include "trainer/ops/cpu/internal/vector_loop.h"

namespace ckpt::trainer {
namespace {

// A tensor as [rows, columns], whose last dim is normalised.
struct NormShape {
  std::int64_t rows = 0;
  std::int64_t columns = 0;
};

NormShape NormShapeOf(const Tensor& x, const Tensor& weight, const Tensor& statistics,
                      std::int64_t num_statistics) {
  const std::int64_t columns = weight.num_elems();
  CKPT_CHECK(columns > 0 && x.ndim > 0 && x.dim(x.ndim - 1) == columns);
  const NormShape shape{x.num_elems() / columns, columns};
  CKPT_CHECK(weight.dtype == x.dtype && statistics.dtype == StatisticsDType(x.dtype));
  CKPT_CHECK(statistics.num_elems() == shape.rows * num_statistics);
  return shape;
}

void CheckLike(const Tensor& x, const Tensor& y) {
  CKPT_CHECK(x.dtype == y.dtype && x.num_elems() == y.num_elems());
}

}  // namespace

void HostOps::RmsNorm(Queue& queue, const Tensor& x, const Tensor& weight, double eps,
                      const Tensor& y, const Tensor& rstd) {
  const NormShape shape = NormShapeOf(x, weight, rstd, 1);
  CheckLike(x, y);
  RunOn(queue, [this, x, weight, eps, y, rstd, shape] {
    DispatchCompute(x.dtype, [&](auto tag) {
      using T = typename decltype(tag)::type;
      const std::int64_t columns = shape.columns;
      parallel_.For(shape.rows, GrainRows(columns), [&](std::int64_t begin, std::int64_t end) {
        WithWidestVectors([&] {
          for (std::int64_t row = begin; row < end; ++row) {
            rstd.as<Real<T>>()[row] =
                NormalizeRow(x.as<const T>() + row * columns, weight.as<const T>(),
                             static_cast<Real<T>>(eps), columns, y.as<T>() + row * columns);
          }
        });
      });
    });
  });
}

void HostOps::AddRmsNorm(Queue& queue, const Tensor& x, const Tensor& delta, const Tensor& weight,
                         double eps, const Tensor& sum, const Tensor& y, const Tensor& rstd) {
  const NormShape shape = NormShapeOf(x, weight, rstd, 1);
  CheckLike(x, delta);
  CheckLike(x, sum);
  CheckLike(x, y);
  RunOn(queue, [this, x, delta, weight, eps, sum, y, rstd, shape] {
    DispatchCompute(x.dtype, [&](auto tag) {
      using T = typename decltype(tag)::type;
      const std::int64_t columns = shape.columns;
      parallel_.For(shape.rows, GrainRows(columns), [&](std::int64_t begin, std::int64_t end) {
        WithWidestVectors([&] {
          for (std::int64_t row = begin; row < end; ++row) {
            const auto* a = x.as<const T>() + row * columns;
            const auto* b = delta.as<const T>() + row * columns;
            auto* total = sum.as<T>() + row * columns;
            ForEach(0, columns,
                    [=](std::int64_t i) { total[i] = Store<T>(Load(a[i]) + Load(b[i])); });
            rstd.as<Real<T>>()[row] =
                NormalizeRow<T>(total, weight.as<const T>(), static_cast<Real<T>>(eps), columns,
                                y.as<T>() + row * columns);
          }
        });
      });
    });
  });
}

void HostOps::RmsNormBackward(Queue& queue, const Tensor& dy, const Tensor& x, const Tensor& weight,
                              const Tensor& rstd, bool accumulate, const Tensor& dx,
                              const Gradient& dweight) {
  const NormShape shape = NormShapeOf(x, weight, rstd, 1);
  CheckLike(x, dy);
  CheckLike(x, dx);
  RunOn(queue, [this, dy, x, weight, rstd, accumulate, dx, dweight, shape] {
    DispatchCompute(x.dtype, [&](auto tag) {
      using T = typename decltype(tag)::type;
      using S = Real<T>;
      const std::int64_t columns = shape.columns;
      const auto* w = weight.as<const T>();
      RowBlockSums<S> dweights(shape.rows, dweight ? columns : 0);
      dweights.ForRows(parallel_, columns, [&](std::int64_t row, S* dw) {
        NormalizeRowBackward(dy.as<const T>() + row * columns, x.as<const T>() + row * columns, w,
                             rstd.as<const S>()[row], columns, accumulate,
                             dx.as<T>() + row * columns, dweight ? dw : nullptr);
      });
      if (dweight) dweights.Write(parallel_, dweight);
    });
  });
}

void HostOps::LayerNorm(Queue& queue, const Tensor& x, const Tensor& weight, const Tensor& bias,
                        double eps, const Tensor& y, const Tensor& statistics) {
  const NormShape shape = NormShapeOf(x, weight, statistics, 2);
  CheckLike(x, y);
  CheckLike(weight, bias);
  RunOn(queue, [this, x, weight, bias, eps, y, statistics, shape] {
    DispatchCompute(x.dtype, [&](auto tag) {
      using T = typename decltype(tag)::type;
      using S = Real<T>;
      const auto [rows, columns] = shape;
      const auto* w = weight.as<const T>();
      const auto* b = bias.as<const T>();
      const auto size = static_cast<S>(columns);
      const auto epsilon = static_cast<S>(eps);
      parallel_.For(
          rows, GrainRows(columns), [&, columns = columns](std::int64_t begin, std::int64_t end) {
            WithWidestVectors([&] {
              for (std::int64_t row = begin; row < end; ++row) {
                const auto* in = x.as<const T>() + row * columns;
                auto* out = y.as<T>() + row * columns;
                const S mean =
                    LaneSum<S>(columns, [=](std::int64_t i) { return Load(in[i]); }) / size;
                const S squares = LaneSum<S>(columns, [=](std::int64_t i) {
                  const S distance = Load(in[i]) - mean;
                  return distance * distance;
                });
                const S scale = S{1} / std::sqrt(squares / size + epsilon);
                statistics.as<S>()[2 * row] = mean;
                statistics.as<S>()[2 * row + 1] = scale;
                ForEach(0, columns, [=](std::int64_t i) {
                  out[i] = Store<T>(Load(w[i]) * ((Load(in[i]) - mean) * scale) + Load(b[i]));
                });
              }
            });
          });
    });
  });
}

void HostOps::LayerNormBackward(Queue& queue, const Tensor& dy, const Tensor& x,
                                const Tensor& weight, const Tensor& statistics, bool accumulate,
                                const Tensor& dx, const Gradient& dweight, const Gradient& dbias) {
  const NormShape shape = NormShapeOf(x, weight, statistics, 2);
  CheckLike(x, dy);
  CheckLike(x, dx);
  RunOn(queue, [this, dy, x, weight, statistics, accumulate, dx, dweight, dbias, shape] {
    DispatchCompute(x.dtype, [&](auto tag) {
      using T = typename decltype(tag)::type;
      using S = Real<T>;
      const std::int64_t columns = shape.columns;
      const auto size = static_cast<S>(columns);
      const auto* w = weight.as<const T>();
      RowBlockSums<S> dweights(shape.rows, dweight ? columns : 0);
      RowBlockSums<S> dbiases(shape.rows, dbias ? columns : 0);
      dweights.ForRows(parallel_, columns, [&](std::int64_t row, S* dw) {
        const auto* in = x.as<const T>() + row * columns;
        const auto* dout = dy.as<const T>() + row * columns;
        auto* din = dx.as<T>() + row * columns;
        const S mean = statistics.as<const S>()[2 * row];
        const S scale = statistics.as<const S>()[2 * row + 1];
        const auto normalized = [=](std::int64_t i) { return (Load(in[i]) - mean) * scale; };
        const S mean_g =
            LaneSum<S>(columns, [=](std::int64_t i) { return Load(w[i]) * Load(dout[i]); }) / size;
        const S mean_gx =
            LaneSum<S>(columns,
                       [=](std::int64_t i) { return Load(w[i]) * Load(dout[i]) * normalized(i); }) /
            size;
        if (dweight) {
          ForEach(0, columns, [=](std::int64_t i) { dw[i] += Load(dout[i]) * normalized(i); });
        }
        if (dbias) {
          S* db = dbiases.block(row / RowBlockSums<S>::kRows);
          ForEach(0, columns, [=](std::int64_t i) { db[i] += Load(dout[i]); });
        }
        const auto gradient = [=](std::int64_t i) {
          return scale * (Load(w[i]) * Load(dout[i]) - mean_g - normalized(i) * mean_gx);
        };
        if (accumulate) {
          ForEach(0, columns,
                  [=](std::int64_t i) { din[i] = Store<T>(Load(din[i]) + gradient(i)); });
        } else {
          ForEach(0, columns, [=](std::int64_t i) { din[i] = Store<T>(gradient(i)); });
        }
      });
      if (dweight) dweights.Write(parallel_, dweight);
      if (dbias) dbiases.Write(parallel_, dbias);
    });
  });
}

}  // namespace ckpt::trainer
