#include "trainer/model/norm.h"

#include <utility>

#include "trainer/model/block_params.h"

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

void Norm::Forward(BlockContext& context, std::span<const Tensor> weights, const Tensor& x,
                   const Tensor& y) {
  const std::int64_t rows = x.dim(0);
  saved_.x = x;
  switch (kind_) {
    case Normalization::kRmsNorm:
      saved_.statistics = context.arena.Allocate(context.statistics(), {rows});
      context.ops.RmsNorm(context.queue, x, weights[0], epsilon_, y, saved_.statistics);
      return;
    case Normalization::kLayerNorm:
      saved_.statistics = context.arena.Allocate(context.statistics(), {rows, 2});
      context.ops.LayerNorm(context.queue, x, weights[0], weights[1], epsilon_, y,
                            saved_.statistics);
      return;
  }
}

void Norm::Backward(BlockContext& context, std::span<const Tensor> weights,
                    std::span<const Gradient> gradients, const Tensor& dy, const Tensor& dx) {
  constexpr bool kAccumulate = true;
  switch (kind_) {
    case Normalization::kRmsNorm:
      context.ops.RmsNormBackward(context.queue, dy, saved_.x, weights[0], saved_.statistics,
                                  kAccumulate, dx, gradients[0]);
      return;
    case Normalization::kLayerNorm:
      context.ops.LayerNormBackward(context.queue, dy, saved_.x, weights[0], saved_.statistics,
                                    kAccumulate, dx, gradients[0], gradients[1]);
      return;
  }
}

}  // namespace ckpt::trainer
