#include "trainer/model/internal/layer.h"

#include <utility>

#include "trainer/model/internal/latent_attention.h"

namespace ckpt::trainer {
namespace {

std::string LayerPrefix(int index) { return "decoder.layers." + std::to_string(index) + "."; }

// The norm of attention and that of the feed-forward block of a layer.
struct LayerNorms {
  Norm attention, mlp;
};

LayerNorms NormsOf(const ModelConfig& config, const std::string& prefix) {
  if (config.post_layernorm) {
    return {Norm(config, prefix + "self_attention.linear_proj.post_layernorm."),
            Norm(config, prefix + "mlp.linear_fc2.post_layernorm.")};
  }
  return {Norm(config, prefix + "input_layernorm."), Norm(config, prefix + "pre_mlp_layernorm.")};
}

std::unique_ptr<Attention> MakeAttention(const ModelConfig& config, int index,
                                         const std::string& layer_prefix, const RopeTable* rope) {
  const std::string prefix = layer_prefix + "self_attention.";
  if (config.mla) return std::make_unique<LatentAttention>(config, index, prefix, *rope);
  return std::make_unique<GroupedAttention>(config, index, prefix, rope);
}

std::variant<Mlp, MoeBlock> MakeMlp(const ModelConfig& config, int index, const std::string& prefix,
                                    const LayerSurroundings& surroundings) {
  if (!config.is_moe_layer.at(static_cast<std::size_t>(index))) return Mlp(config, prefix);
  return MoeBlock(config, prefix, surroundings.moe, surroundings.expert_bias,
                  surroundings.expert_counts);
}

void Append(std::vector<ParamSpec> more, std::vector<ParamSpec>& params) {
  for (ParamSpec& param : more) params.push_back(std::move(param));
}

}  // namespace

std::vector<ParamSpec> LayerParams(const ModelConfig& config, int index, ExpertPlace place) {
  const std::string prefix = LayerPrefix(index);
  const RopeTable rope(config.rope, RotatedElements(config));
  const LayerNorms norms = NormsOf(config, prefix);
  std::vector<ParamSpec> params = norms.attention.Params();
  Append(MakeAttention(config, index, prefix, &rope)->Params(), params);
  Append(norms.mlp.Params(), params);
  Append(config.is_moe_layer.at(static_cast<std::size_t>(index))
             ? MoeParams(config, prefix + "mlp.", place)
             : Mlp(config, prefix + "mlp.").Params(),
         params);
  return params;
}

Layer::Layer(const ModelConfig& config, int index, const LayerSurroundings& surroundings)
    : has_norms_behind_(config.post_layernorm),
      attention_norm_(NormsOf(config, LayerPrefix(index)).attention),
      attention_(MakeAttention(config, index, LayerPrefix(index), surroundings.rope)),
      mlp_norm_(NormsOf(config, LayerPrefix(index)).mlp),
      mlp_(MakeMlp(config, index, LayerPrefix(index) + "mlp.", surroundings)),
      num_norm_params_(attention_norm_.Params().size()),
      num_attention_params_(attention_->Params().size()) {}

template <typename T>
Layer::Parts<T> Layer::Divide(std::span<const T> params) const {
  const auto take = [&](std::size_t count) {
    const std::span<const T> part = params.first(count);
    params = params.subspan(count);
    return part;
  };
  Parts<T> parts;
  parts.attention_norm = take(num_norm_params_);
  parts.attention = take(num_attention_params_);
  parts.mlp_norm = take(num_norm_params_);
  parts.mlp = params;
  return parts;
}

Tensor Layer::ForwardAttention(BlockContext& context, const Parts<Tensor>& weights,
                               const Residual& in, const Tensor& h) {
  if (has_norms_behind_) return ForwardAttentionAndNorm(context, weights, in, h);
  const auto allocate = [&] {
    return context.arena.Allocate(context.compute, {in.x.dim(0), in.x.dim(1)});
  };
  const Tensor attention_input = allocate();
  const Tensor x = attention_norm_.Forward(context, weights.attention_norm, in, attention_input);
  attention_->Forward(context, weights.attention, attention_input, h);
  const Tensor mlp_input = allocate();
  mlp_norm_.Forward(context, weights.mlp_norm, {.x = x, .delta = h}, mlp_input);
  return mlp_input;
}

Tensor Layer::ForwardAttentionAndNorm(BlockContext& context, const Parts<Tensor>& weights,
                                      const Residual& in, const Tensor& h) {
  const Tensor x = in.delta ? in.delta : in.x;
  if (in.delta) context.ops.Add(context.queue, in.x, in.delta, x);
  const Tensor result = context.arena.Allocate(context.compute, {x.dim(0), x.dim(1)});
  attention_->Forward(context, weights.attention, x, result);
  attention_norm_.Forward(context, weights.attention_norm, {.x = result}, h);
  context.ops.Add(context.queue, x, h, h);
  return h;
}

void Layer::Forward(BlockContext& context, std::span<const Tensor> weights, const Residual& in,
                    const Residual& out, const Tensor& aux_loss) {
  const Parts<Tensor> w = Divide(weights);
  auto* const moe = std::get_if<MoeBlock>(&mlp_);
  if (moe != nullptr) moe->PlanRouting(context);
  recomputed_ = context.arena.Position();
  const Tensor mlp_input = ForwardAttention(context, w, in, out.x);
  const Tensor result = has_norms_behind_
                            ? context.arena.Allocate(context.compute, {in.x.dim(0), in.x.dim(1)})
                            : out.delta;
  if (moe != nullptr) {
    moe->Forward(context, w.mlp, mlp_input, result, aux_loss);
  } else {
    std::get<Mlp>(mlp_).Forward(context, w.mlp, mlp_input, result);
  }
  if (has_norms_behind_) mlp_norm_.Forward(context, w.mlp_norm, {.x = result}, out.delta);
}

void Layer::Recompute(BlockContext& context, std::span<const Tensor> weights, const Tensor& x) {
  const Parts<Tensor> w = Divide(weights);
  const auto allocate = [&] {
    return context.arena.Allocate(context.compute, {x.dim(0), x.dim(1)});
  };
  const Tensor mlp_input = ForwardAttention(context, w, {.x = x}, allocate());
  // A norm behind reads the result.
  const Tensor result = has_norms_behind_ ? allocate() : Tensor();
  if (auto* moe = std::get_if<MoeBlock>(&mlp_)) {
    moe->Recompute(context, w.mlp, mlp_input, result);
  } else {
    std::get<Mlp>(mlp_).Forward(context, w.mlp, mlp_input, result);
  }
  if (has_norms_behind_) mlp_norm_.Forward(context, w.mlp_norm, {.x = result}, allocate());
}

void Layer::Backward(BlockContext& context, std::span<const Tensor> weights,
                     std::span<const Gradient> gradients, double aux_scale,
                     const Tensor& residual) {
  const Parts<Tensor> w = Divide(weights);
  const Parts<Gradient> g = Divide(gradients);
  const ArenaScope scope(context.arena);
  if (has_norms_behind_) return BackwardWithNormsBehind(context, w, g, aux_scale, residual);
  constexpr bool kAccumulate = true;
  const Tensor dinput = context.arena.Allocate(context.compute, {residual.dim(0), residual.dim(1)});

  BackwardMlp(context, w, g, aux_scale, residual, dinput);
  mlp_norm_.Backward(context, w.mlp_norm, g.mlp_norm, dinput, kAccumulate, residual);

  attention_->Backward(context, w.attention, g.attention, residual, dinput);
  attention_norm_.Backward(context, w.attention_norm, g.attention_norm, dinput, kAccumulate,
                           residual);
}

void Layer::BackwardWithNormsBehind(BlockContext& context, const Parts<Tensor>& weights,
                                    const Parts<Gradient>& gradients, double aux_scale,
                                    const Tensor& residual) {
  const auto allocate = [&] {
    return context.arena.Allocate(context.compute, {residual.dim(0), residual.dim(1)});
  };
  constexpr bool kAccumulate = false;
  const Tensor dresult = allocate();
  const Tensor dinput = allocate();

  mlp_norm_.Backward(context, weights.mlp_norm, gradients.mlp_norm, residual, kAccumulate, dresult);
  BackwardMlp(context, weights, gradients, aux_scale, dresult, dinput);
  context.ops.Add(context.queue, residual, dinput, residual);

  attention_norm_.Backward(context, weights.attention_norm, gradients.attention_norm, residual,
                           kAccumulate, dresult);
  attention_->Backward(context, weights.attention, gradients.attention, dresult, dinput);
  context.ops.Add(context.queue, residual, dinput, residual);
}

void Layer::BackwardMlp(BlockContext& context, const Parts<Tensor>& weights,
                        const Parts<Gradient>& gradients, double aux_scale, const Tensor& dy,
                        const Tensor& dx) {
  if (auto* moe = std::get_if<MoeBlock>(&mlp_)) {
    moe->Backward(context, weights.mlp, gradients.mlp, dy, aux_scale, dx);
  } else {
    std::get<Mlp>(mlp_).Backward(context, weights.mlp, gradients.mlp, dy, dx);
  }
}

}  // namespace ckpt::trainer
