#include "trainer/model/internal/mlp.h"

#include <utility>

#include "core/base/check.h"
#include "trainer/model/internal/activate.h"
#include "trainer/model/internal/block_params.h"
#include "trainer/model/internal/linear.h"

namespace ckpt::trainer {

Mlp::Mlp(const ModelConfig& config, std::string prefix)
    : activation_(config.activation),
      has_bias_(config.mlp_bias),
      hidden_size_(config.hidden_size),
      ffn_size_(config.ffn_hidden_size),
      fc1_rows_(Fc1Rows(activation_, ffn_size_)),
      std_(config.init_method_std),
      residual_std_(ResidualInitStd(config)),
      prefix_(std::move(prefix)) {}

std::vector<ParamSpec> Mlp::Params() const {
  std::vector<ParamSpec> params;
  params.push_back(MatrixSpec(prefix_ + "linear_fc1.weight", fc1_rows_, hidden_size_, std_));
  if (has_bias_) params.push_back(BiasSpec(prefix_ + "linear_fc1.bias", fc1_rows_));
  params.push_back(
      MatrixSpec(prefix_ + "linear_fc2.weight", hidden_size_, ffn_size_, residual_std_));
  if (has_bias_) params.push_back(BiasSpec(prefix_ + "linear_fc2.bias", hidden_size_));
  return params;
}

template <typename T>
Mlp::Parts<T> Mlp::Unpack(std::span<const T> params) const {
  ParamCursor<T> cursor(params);
  Parts<T> unpacked;
  unpacked.fc1 = cursor.Next();
  unpacked.fc1_bias = cursor.NextIf(has_bias_);
  unpacked.fc2 = cursor.Next();
  unpacked.fc2_bias = cursor.NextIf(has_bias_);
  return unpacked;
}

void Mlp::Forward(BlockContext& context, std::span<const Tensor> weights, const Tensor& x,
                  const Tensor& y, const Tensor& token_weights) {
  CKPT_CHECK(!token_weights || !has_bias_);  // a bias behind the weighted product has no weight
  const Parts<Tensor> w = Unpack(weights);
  const auto allocate = [&](std::int64_t columns) {
    return context.arena.Allocate(context.compute, {context.tokens(), columns});
  };
  const bool keeps = context.recompute == Recompute::kNone;
  saved_ = {.x = x,
            .token_weights = token_weights,
            .projected = allocate(fc1_rows_),
            .activated = keeps ? allocate(ffn_size_) : Tensor()};

  Linear(context, x, w.fc1, w.fc1_bias, saved_.projected);
  if (!y && !keeps) return;
  const ArenaScope scope(context.arena);
  const Tensor activated = keeps ? saved_.activated : allocate(ffn_size_);
  Activate(context, activation_, saved_.projected, {.weights = token_weights}, activated);
  if (y) Linear(context, activated, w.fc2, w.fc2_bias, y);
}

void Mlp::Backward(BlockContext& context, std::span<const Tensor> weights,
                   std::span<const Gradient> gradients, const Tensor& dy, const Tensor& dx,
                   const Tensor& dtoken_weights) {
  const Parts<Tensor> w = Unpack(weights);
  const Parts<Gradient> g = Unpack(gradients);
  const ArenaScope scope(context.arena);
  const Tensor dactivated = context.arena.Allocate(context.compute, {context.tokens(), ffn_size_});
  const Tensor dprojected = saved_.projected;  // overwrites it

  LinearBackwardData(context, dy, w.fc2, /*accumulate=*/false, dactivated);
  const Tensor again = saved_.activated ? Tensor() : dactivated;  // overwrites it
  ActivateBackward(context, activation_, dactivated, saved_.projected,
                   {.weights = saved_.token_weights}, dprojected, dtoken_weights, again);
  LinearBackwardWeights(context, dy, again ? again : saved_.activated, g.fc2, g.fc2_bias);
  LinearBackward(context, dprojected, saved_.x, w.fc1, dx, g.fc1, g.fc1_bias);
}

}  // namespace ckpt::trainer
