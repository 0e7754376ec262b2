#include <algorithm>
#include <vector>

#include "core/base/check.h"
#include "trainer/device/cpu/host_device.h"
#include "trainer/ops/cpu/internal/host_ops_impl.h"
#include "trainer/ops/cpu/internal/matrix.h"
#include "trainer/ops/cpu/internal/numeric.h"
#include "trainer/ops/cpu/internal/product.h"

namespace ckpt::trainer {
namespace {

// Rows of a range, or of a weight's gradient, per task.
constexpr std::int64_t kTaskRows = 256;

struct RowRange {
  std::int64_t begin = 0;
  std::int64_t end = 0;
};

// Which rows belong to each weight. Offsets are made on the device, so this reads them when the
// queue runs the product.
class RowRanges {
 public:
  RowRanges(const Tensor& offsets, std::int64_t segments)
      : at_(offsets.as<const std::int32_t>()), segments_(segments) {}

  [[nodiscard]] RowRange Segment(std::int64_t weight, std::int64_t segment) const {
    const std::int32_t* const at = at_ + weight * segments_ + segment;
    return {at[0], at[1]};
  }
  // All segments of a weight, which follow each other.
  [[nodiscard]] RowRange OfWeight(std::int64_t weight) const {
    return {at_[weight * segments_], at_[(weight + 1) * segments_]};
  }

 private:
  const std::int32_t* at_;
  std::int64_t segments_;
};

struct Task {
  std::int64_t weight = 0;
  RowRange rows;
};

// Divides the rows of every weight into tasks.
std::vector<Task> RowTasks(const RowRanges& ranges, std::int64_t num_weights) {
  std::vector<Task> tasks;
  for (std::int64_t weight = 0; weight < num_weights; ++weight) {
    const RowRange rows = ranges.OfWeight(weight);
    for (std::int64_t begin = rows.begin; begin < rows.end; begin += kTaskRows) {
      tasks.push_back({weight, {begin, std::min(begin + kTaskRows, rows.end)}});
    }
  }
  return tasks;
}

template <typename Body>
void ForTasks(Parallel& parallel, const std::vector<Task>& tasks, const Body& body) {
  parallel.For(static_cast<std::int64_t>(tasks.size()), 1,
               [&](std::int64_t begin, std::int64_t end) {
                 for (std::int64_t i = begin; i < end; ++i)
                   body(tasks[static_cast<std::size_t>(i)]);
               });
}

void CheckOperands(const Tensor& wide, const Tensor& narrow, const Tensor& weights,
                   const Tensor& offsets, std::int64_t segments) {
  CKPT_CHECK(wide.ndim == 2 && narrow.ndim == 2 && wide.dim(0) == narrow.dim(0) &&
             wide.dtype == narrow.dtype);
  CKPT_CHECK(weights.ndim == 3 && weights.dim(1) == wide.dim(1) && weights.dim(2) == narrow.dim(1));
  CKPT_CHECK(offsets.dtype == DType::kInt32 && segments >= 1);
  CKPT_CHECK(offsets.num_elems() == weights.dim(0) * segments + 1);
}

// to [R, …] = from · op(weight), where each row uses its own weight.
void ProductsOfRows(Parallel& parallel, SumOrder order, const Tensor& from, const Tensor& weights,
                    bool transpose_weights, const RowRanges& ranges, const Tensor& to) {
  const std::vector<Task> tasks = RowTasks(ranges, weights.dim(0));
  const std::int64_t columns = weights.dim(2);
  const std::int64_t weight_elems = weights.dim(1) * columns;
  DispatchCompute(from.dtype, [&](auto tag) {
    using T = typename decltype(tag)::type;
    const Matrix<T> left{from.as<const T>(), from.dim(1), 1};
    ForTasks(parallel, tasks, [&](const Task& task) {
      const Matrix<T> stored{weights.as<const T>() + task.weight * weight_elems, columns, 1};
      const ProductSize size{task.rows.end - task.rows.begin, to.dim(1), from.dim(1)};
      MultiplyInto(order, size, left.From(task.rows.begin, 0),
                   transpose_weights ? stored.Transposed() : stored,
                   /*accumulate=*/false, to.as<T>() + task.rows.begin * to.dim(1), to.dim(1));
    });
  });
}

}  // namespace

void HostOps::GroupedForward(Queue& queue, const Tensor& x, const Tensor& weights,
                             const Tensor& offsets, std::int64_t segments, const Tensor& y) {
  CheckOperands(y, x, weights, offsets, segments);
  CKPT_CHECK(weights.dtype == x.dtype);
  const SumOrder order = fixed_order_ ? SumOrder::kFixed : SumOrder::kAny;
  RunOn(queue, [this, order, x, y, offsets, segments, weights] {
    ProductsOfRows(parallel_, order, x, weights, /*transpose_weights=*/true,
                   RowRanges(offsets, segments), y);
  });
}

void HostOps::GroupedBackwardData(Queue& queue, const Tensor& dy, const Tensor& weights,
                                  const Tensor& offsets, std::int64_t segments, const Tensor& dx) {
  CheckOperands(dy, dx, weights, offsets, segments);
  CKPT_CHECK(weights.dtype == dy.dtype);
  const SumOrder order = fixed_order_ ? SumOrder::kFixed : SumOrder::kAny;
  RunOn(queue, [this, order, dy, dx, offsets, segments, weights] {
    ProductsOfRows(parallel_, order, dy, weights, /*transpose_weights=*/false,
                   RowRanges(offsets, segments), dx);
  });
}

void HostOps::GroupedBackwardWeights(Queue& queue, const Tensor& dy, const Tensor& x,
                                     const Tensor& offsets, std::int64_t segments,
                                     const Gradient& dweights) {
  if (!dweights) return;
  CheckOperands(dy, x, dweights.tensor, offsets, segments);
  const SumOrder order = fixed_order_ ? SumOrder::kFixed : SumOrder::kAny;
  RunOn(queue, [this, order, dy, x, offsets, segments, dweights] {
    const RowRanges ranges(offsets, segments);
    const std::int64_t rows_of_weight = dy.dim(1);
    const std::int64_t columns = x.dim(1);
    std::vector<Task> tasks;  // rows of a weight's gradient
    for (std::int64_t weight = 0; weight < dweights.tensor.dim(0); ++weight) {
      for (std::int64_t begin = 0; begin < rows_of_weight; begin += kTaskRows) {
        tasks.push_back({weight, {begin, std::min(begin + kTaskRows, rows_of_weight)}});
      }
    }
    DispatchCompute(x.dtype, [&](auto compute) {
      using T = typename decltype(compute)::type;
      const Matrix<T> gradients{dy.as<const T>(), rows_of_weight, 1};
      const Matrix<T> inputs{x.as<const T>(), columns, 1};
      DispatchGradient(dweights.tensor.dtype, [&](auto gradient) {
        using G = typename decltype(gradient)::type;
        ForTasks(parallel_, tasks, [&](const Task& task) {
          const std::int64_t num_rows = task.rows.end - task.rows.begin;
          G* const to =
              dweights.tensor.as<G>() + (task.weight * rows_of_weight + task.rows.begin) * columns;
          bool accumulate = dweights.adds();
          // In order of the segments. Each is its own contribution and is rounded by itself.
          for (std::int64_t segment = 0; segment < segments; ++segment) {
            const RowRange rows = ranges.Segment(task.weight, segment);
            if (rows.begin == rows.end) continue;
            const ProductSize size{num_rows, columns, rows.end - rows.begin};
            MultiplyInto(order, size, gradients.From(rows.begin, task.rows.begin).Transposed(),
                         inputs.From(rows.begin, 0), accumulate, to, columns);
            accumulate = true;
          }
          if (!accumulate) std::fill_n(to, num_rows * columns, G{});
        });
      });
    });
  });
}

}  // namespace ckpt::trainer
