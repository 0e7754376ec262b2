#include "trainer/model/internal/layer.h"

#include <utility>

#include "trainer/model/internal/latent_attention.h"

namespace ckpt::trainer {
namespace {

std::string LayerPrefix(int index) { return "decoder.layers." + std::to_string(index) + "."; }

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
  std::vector<ParamSpec> params = Norm(config, prefix + "input_layernorm.").Params();
  Append(MakeAttention(config, index, prefix, &rope)->Params(), params);
  Append(Norm(config, prefix + "pre_mlp_layernorm.").Params(), params);
  Append(config.is_moe_layer.at(static_cast<std::size_t>(index))
             ? MoeParams(config, prefix + "mlp.", place)
             : Mlp(config, prefix + "mlp.").Params(),
         params);
  return params;
}

Layer::Layer(const ModelConfig& config, int index, const LayerSurroundings& surroundings)
    : input_norm_(config, LayerPrefix(index) + "input_layernorm."),
      attention_(MakeAttention(config, index, LayerPrefix(index), surroundings.rope)),
      mlp_norm_(config, LayerPrefix(index) + "pre_mlp_layernorm."),
      mlp_(MakeMlp(config, index, LayerPrefix(index) + "mlp.", surroundings)),
      num_norm_params_(input_norm_.Params().size()),
      num_attention_params_(attention_->Params().size()) {}

template <typename T>
Layer::Parts<T> Layer::Divide(std::span<const T> params) const {
  const auto take = [&](std::size_t count) {
    const std::span<const T> part = params.first(count);
    params = params.subspan(count);
    return part;
  };
  Parts<T> parts;
  parts.input_norm = take(num_norm_params_);
  parts.attention = take(num_attention_params_);
  parts.mlp_norm = take(num_norm_params_);
  parts.mlp = params;
  return parts;
}

Tensor Layer::ForwardAttention(BlockContext& context, const Parts<Tensor>& weights,
                               const Residual& in, const Tensor& h) {
  const auto allocate = [&] {
    return context.arena.Allocate(context.compute, {in.x.dim(0), in.x.dim(1)});
  };
  const Tensor attention_input = allocate();
  const Tensor x = input_norm_.Forward(context, weights.input_norm, in, attention_input);
  attention_->Forward(context, weights.attention, attention_input, h);
  const Tensor mlp_input = allocate();
  mlp_norm_.Forward(context, weights.mlp_norm, {.x = x, .delta = h}, mlp_input);
  return mlp_input;
}

void Layer::Forward(BlockContext& context, std::span<const Tensor> weights, const Residual& in,
                    const Residual& out, const Tensor& aux_loss) {
  const Parts<Tensor> w = Divide(weights);
  auto* const moe = std::get_if<MoeBlock>(&mlp_);
  if (moe != nullptr) moe->PlanRouting(context);
  recomputed_ = context.arena.Position();
  const Tensor mlp_input = ForwardAttention(context, w, in, out.x);
  if (moe != nullptr) {
    moe->Forward(context, w.mlp, mlp_input, out.delta, aux_loss);
  } else {
    std::get<Mlp>(mlp_).Forward(context, w.mlp, mlp_input, out.delta);
  }
}

void Layer::Recompute(BlockContext& context, std::span<const Tensor> weights, const Tensor& x) {
  const Parts<Tensor> w = Divide(weights);
  const Tensor h = context.arena.Allocate(context.compute, {x.dim(0), x.dim(1)});
  const Tensor mlp_input = ForwardAttention(context, w, {.x = x}, h);
  if (auto* moe = std::get_if<MoeBlock>(&mlp_)) {
    moe->Recompute(context, w.mlp, mlp_input);
  } else {
    std::get<Mlp>(mlp_).Forward(context, w.mlp, mlp_input, {});
  }
}

void Layer::Backward(BlockContext& context, std::span<const Tensor> weights,
                     std::span<const Gradient> gradients, double aux_scale,
                     const Tensor& residual) {
  const Parts<Tensor> w = Divide(weights);
  const Parts<Gradient> g = Divide(gradients);
  const ArenaScope scope(context.arena);
  constexpr bool kAccumulate = true;
  const Tensor dinput = context.arena.Allocate(context.compute, {residual.dim(0), residual.dim(1)});

  if (auto* moe = std::get_if<MoeBlock>(&mlp_)) {
    moe->Backward(context, w.mlp, g.mlp, residual, aux_scale, dinput);
  } else {
    std::get<Mlp>(mlp_).Backward(context, w.mlp, g.mlp, residual, dinput);
  }
  mlp_norm_.Backward(context, w.mlp_norm, g.mlp_norm, dinput, kAccumulate, residual);

  attention_->Backward(context, w.attention, g.attention, residual, dinput);
  input_norm_.Backward(context, w.input_norm, g.input_norm, dinput, kAccumulate, residual);
}

}  // namespace ckpt::trainer
