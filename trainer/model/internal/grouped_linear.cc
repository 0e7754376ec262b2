#include "trainer/model/internal/grouped_linear.h"

#include "core/base/check.h"

namespace ckpt::trainer {
namespace {

Tensor& TensorOf(Tensor& tensor) { return tensor; }
Tensor& TensorOf(Gradient& gradient) { return gradient.tensor; }

bool AreWrittenAlike(const Tensor& /*a*/, const Tensor& /*b*/) { return true; }
bool AreWrittenAlike(const Gradient& a, const Gradient& b) { return a.write == b.write; }

template <typename T>
std::vector<ExpertRun<T>> ListRunsOf(std::span<const T> experts) {
  std::vector<ExpertRun<T>> runs;
  for (std::size_t i = 0; i < experts.size(); ++i) {
    if (!experts[i]) continue;
    T single = experts[i];
    Tensor& matrix = TensorOf(single);
    matrix = matrix.Reshape({1, matrix.dim(0), matrix.dim(1)});
    if (!runs.empty() && AreWrittenAlike(runs.back().matrices, single)) {
      Tensor& stack = TensorOf(runs.back().matrices);
      CKPT_CHECK(stack.dtype == matrix.dtype && stack.dim(1) == matrix.dim(1) &&
                 stack.dim(2) == matrix.dim(2));
      const bool is_next = runs.back().first + stack.dim(0) == static_cast<std::int64_t>(i) &&
                           stack.bytes() + stack.size_bytes() == matrix.bytes();
      if (is_next) {
        ++stack.dims[0];
        continue;
      }
    }
    runs.push_back({.first = static_cast<std::int64_t>(i), .matrices = single});
  }
  return runs;
}

// The row ranges of `count` experts from `first` on.
Tensor OffsetsOf(const Dispatch& dispatch, std::int64_t first, std::int64_t count) {
  return dispatch.offsets().Rows(first * dispatch.segments(), count * dispatch.segments() + 1);
}

}  // namespace

std::vector<ExpertRun<Tensor>> ListRuns(std::span<const Tensor> weights) {
  return ListRunsOf(weights);
}

std::vector<ExpertRun<Gradient>> ListRuns(std::span<const Gradient> gradients) {
  return ListRunsOf(gradients);
}

void GroupedLinear(BlockContext& context, const Dispatch& dispatch, const Tensor& x,
                   std::span<const Tensor> weights, const Tensor& y) {
  for (const ExpertRun<Tensor>& run : ListRuns(weights)) {
    context.ops.GroupedForward(context.queue, x, run.matrices,
                               OffsetsOf(dispatch, run.first, run.matrices.dim(0)),
                               dispatch.segments(), y);
  }
}

void GroupedLinearBackwardData(BlockContext& context, const Dispatch& dispatch, const Tensor& dy,
                               std::span<const Tensor> weights, const Tensor& dx) {
  for (const ExpertRun<Tensor>& run : ListRuns(weights)) {
    context.ops.GroupedBackwardData(context.queue, dy, run.matrices,
                                    OffsetsOf(dispatch, run.first, run.matrices.dim(0)),
                                    dispatch.segments(), dx);
  }
}

void GroupedLinearBackwardWeights(BlockContext& context, const Dispatch& dispatch, const Tensor& dy,
                                  const Tensor& x, std::span<const Gradient> dweights) {
  for (const ExpertRun<Gradient>& run : ListRuns(dweights)) {
    context.ops.GroupedBackwardWeights(context.queue, dy, x,
                                       OffsetsOf(dispatch, run.first, run.matrices.tensor.dim(0)),
                                       dispatch.segments(), run.matrices);
  }
}

}  // namespace ckpt::trainer
