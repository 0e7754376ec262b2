#include "trainer/model/internal/norm.h"

#include <utility>

#include "trainer/model/internal/block_params.h"

namespace ckpt::trainer {

Norm::Norm(const ModelConfig& config, std::string prefix)
    : kind_(config.normalization),
      epsilon_(config.norm_epsilon),
      hidden_size_(config.hidden_size),
      prefix_(std::move(prefix)) {}

std::vector<ParamSpec> Norm::Params() const {
  std::vector<ParamSpec> params{NormWeightSpec(prefix_ + "weight", hidden_size_)};
  if (kind_ == Normalization::kLayerNorm)
    params.push_back(BiasSpec(prefix_ + "bias", hidden_size_));
  return params;
}

Tensor Norm::Forward(BlockContext& context, std::span<const Tensor> weights, const Residual& stream,
                     const Tensor& y) {
  const auto& [x, delta] = stream;
  const std::int64_t rows = x.dim(0);
  saved_.sum = delta ? delta : x;
  switch (kind_) {
    case Normalization::kRmsNorm:
      saved_.statistics = context.arena.Allocate(context.statistics(), {rows});
      if (delta) {
        context.ops.AddRmsNorm(context.queue, x, delta, weights[0], epsilon_, saved_.sum, y,
                               saved_.statistics);
      } else {
        context.ops.RmsNorm(context.queue, x, weights[0], epsilon_, y, saved_.statistics);
      }
      break;
    case Normalization::kLayerNorm:
      saved_.statistics = context.arena.Allocate(context.statistics(), {rows, 2});
      if (delta) context.ops.Add(context.queue, x, delta, saved_.sum);
      context.ops.LayerNorm(context.queue, saved_.sum, weights[0], weights[1], epsilon_, y,
                            saved_.statistics);
      break;
  }
  return saved_.sum;
}

void Norm::Backward(BlockContext& context, std::span<const Tensor> weights,
                    std::span<const Gradient> gradients, const Tensor& dy, bool accumulate,
                    const Tensor& dx) {
  switch (kind_) {
    case Normalization::kRmsNorm:
      context.ops.RmsNormBackward(context.queue, dy, saved_.sum, weights[0], saved_.statistics,
                                  accumulate, dx, gradients[0]);
      return;
    case Normalization::kLayerNorm:
      context.ops.LayerNormBackward(context.queue, dy, saved_.sum, weights[0], saved_.statistics,
                                    accumulate, dx, gradients[0], gradients[1]);
      return;
  }
}

}  // namespace ckpt::trainer
