#include "trainer/model/internal/shared_experts.h"

#include <utility>

#include "trainer/model/internal/block_params.h"

namespace ckpt::trainer {
namespace {

constexpr RouterForm kGate = {.score = ScoreFunction::kSigmoid, .topk = 1};

ModelConfig WithSharedSize(ModelConfig config) {
  config.ffn_hidden_size = config.moe->shared_expert_ffn_hidden_size;
  return config;
}

}  // namespace

SharedExperts::SharedExperts(const ModelConfig& config, std::string prefix)
    : has_gate_(config.moe->shared_expert_gate),
      hidden_size_(config.hidden_size),
      std_(config.init_method_std),
      prefix_(std::move(prefix)),
      mlp_(WithSharedSize(config), prefix_) {}

std::vector<ParamSpec> SharedExperts::Params() const {
  std::vector<ParamSpec> params = mlp_.Params();
  if (has_gate_) params.push_back(MatrixSpec(prefix_ + "gate_weight", 1, hidden_size_, std_));
  return params;
}

void SharedExperts::Forward(BlockContext& context, std::span<const Tensor> weights, const Tensor& x,
                            const Tensor& y) {
  if (!has_gate_) return mlp_.Forward(context, weights, x, y);
  const auto allocate = [&](DType dtype) {
    return context.arena.Allocate(dtype, {context.tokens(), 1});
  };
  const DType statistics = context.statistics();
  gate_ = {.x = x,
           .scores = allocate(statistics),
           .experts = allocate(DType::kInt32),
           .weights = allocate(statistics)};
  {
    const ArenaScope scope(context.arena);
    const Tensor logits = allocate(statistics);
    context.ops.Gemm(context.queue, {.transpose_b = true}, x, weights.back(), logits);
    context.ops.Router(context.queue, kGate, logits, /*expert_bias=*/{}, /*positions=*/{},
                       gate_.scores, gate_.experts, gate_.weights);
  }
  mlp_.Forward(context, OfMlp(weights), x, y, gate_.weights.Reshape({context.tokens()}));
}

void SharedExperts::Backward(BlockContext& context, std::span<const Tensor> weights,
                             std::span<const Gradient> gradients, const Tensor& dy,
                             const Tensor& dx) {
  if (!has_gate_) return mlp_.Backward(context, weights, gradients, dy, dx);
  const ArenaScope scope(context.arena);
  const auto allocate = [&] {
    return context.arena.Allocate(context.statistics(), {context.tokens(), 1});
  };
  const Tensor dweights = allocate();
  const Tensor dlogits = allocate();
  mlp_.Backward(context, OfMlp(weights), OfMlp(gradients), dy, dx,
                dweights.Reshape({context.tokens()}));
  context.ops.RouterBackward(context.queue, kGate, gate_.scores, gate_.experts, dweights, dlogits);
  context.ops.RouterLogitsBackward(context.queue, dlogits, gate_.x, weights.back(), dx,
                                   gradients.back());
}

}  // namespace ckpt::trainer
