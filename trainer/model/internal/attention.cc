#include "trainer/model/internal/attention.h"

#include <cmath>
#include <utility>

#include "trainer/model/internal/block_params.h"
#include "trainer/model/internal/linear.h"

namespace ckpt::trainer {

GroupedAttention::GroupedAttention(const ModelConfig& config, int layer, std::string prefix,
                                   const RopeTable* rope)
    : heads_{.num_heads = config.num_attention_heads,
             .num_kv_heads = config.num_query_groups,
             .head_dim = config.kv_channels},
      hidden_size_(config.hidden_size),
      qkv_size_((heads_.num_heads + 2 * heads_.num_kv_heads) * heads_.head_dim),
      window_(config.window_size.at(static_cast<std::size_t>(layer))),
      scale_(config.softmax_scale != 0 ? config.softmax_scale
                                       : 1 / std::sqrt(static_cast<double>(heads_.head_dim))),
      has_qkv_bias_(config.qkv_bias),
      has_output_bias_(config.attention_output_bias),
      has_qk_norm_(config.qk_layernorm && !config.qk_layernorm_over_heads),
      has_wide_norm_(config.qk_layernorm && config.qk_layernorm_over_heads),
      norm_epsilon_(config.norm_epsilon),
      std_(config.init_method_std),
      residual_std_(ResidualInitStd(config)),
      prefix_(std::move(prefix)),
      rope_(rope) {}

std::vector<ParamSpec> GroupedAttention::Params() const {
  const std::int64_t output_size = heads_.num_heads * heads_.head_dim;
  std::vector<ParamSpec> params;
  params.push_back(MatrixSpec(prefix_ + "linear_qkv.weight", qkv_size_, hidden_size_, std_));
  if (has_qkv_bias_) params.push_back(BiasSpec(prefix_ + "linear_qkv.bias", qkv_size_));
  if (has_qk_norm_ || has_wide_norm_) {
    const auto add_norm = [&](const char* name, std::int64_t heads) {
      params.push_back(
          NormWeightSpec(prefix_ + name, (has_wide_norm_ ? heads : 1) * heads_.head_dim));
    };
    add_norm("q_layernorm.weight", heads_.num_heads);
    add_norm("k_layernorm.weight", heads_.num_kv_heads);
  }
  params.push_back(
      MatrixSpec(prefix_ + "linear_proj.weight", hidden_size_, output_size, residual_std_));
  if (has_output_bias_) params.push_back(BiasSpec(prefix_ + "linear_proj.bias", hidden_size_));
  return params;
}

template <typename T>
GroupedAttention::Parts<T> GroupedAttention::Unpack(std::span<const T> params) const {
  ParamCursor<T> cursor(params);
  Parts<T> unpacked;
  unpacked.qkv = cursor.Next();
  unpacked.qkv_bias = cursor.NextIf(has_qkv_bias_);
  unpacked.q_norm = cursor.NextIf(has_qk_norm_ || has_wide_norm_);
  unpacked.k_norm = cursor.NextIf(has_qk_norm_ || has_wide_norm_);
  unpacked.proj = cursor.Next();
  unpacked.proj_bias = cursor.NextIf(has_output_bias_);
  return unpacked;
}

AttentionShape GroupedAttention::Shape(const BlockContext& context) const {
  return {.batch = context.batch,
          .seq = context.seq,
          .num_heads = heads_.num_heads,
          .num_kv_heads = heads_.num_kv_heads,
          .qk_dim = heads_.head_dim,
          .v_dim = heads_.head_dim,
          .v_stride = has_qk_norm_ ? qkv_size_ / heads_.num_kv_heads : 0,
          .scale = scale_,
          .window = window_,
          .examples = context.layout.examples};
}

Tensor GroupedAttention::AllocateHeads(BlockContext& context, std::int64_t num_heads) const {
  return context.arena.Allocate(context.compute, {context.tokens(), num_heads, heads_.head_dim});
}

RopeForm GroupedAttention::Rotation(const BlockContext& context) const {
  return {.seq = context.seq,
          .positions = context.layout.positions,
          .dim = rope_->dim(),
          .at_front = true,
          .interleaved = rope_->interleaved()};
}

QkvForm GroupedAttention::Form(const BlockContext& context, const Parts<Tensor>& weights) const {
  QkvForm form = {.shape = heads_,
                  .q_norm = weights.q_norm,
                  .k_norm = weights.k_norm,
                  .norm_eps = norm_epsilon_};
  if (rope_ == nullptr) return form;
  form.rope = Rotation(context);
  form.cosine = rope_->cosine();
  form.sine = rope_->sine();
  return form;
}

Tensor GroupedAttention::ValuesIn(BlockContext& context, const Tensor& qkv) const {
  const std::int64_t before = (heads_.num_heads / heads_.num_kv_heads + 1) * heads_.head_dim;
  return {qkv.bytes() + static_cast<std::uint64_t>(before) * ElementBytes(qkv.dtype),
          qkv.dtype,
          {context.tokens(), heads_.num_kv_heads, heads_.head_dim}};
}

void GroupedAttention::PrepareOverHeads(BlockContext& context, const Parts<Tensor>& weights,
                                        const Tensor& qkv) {
  context.ops.QkvPrepare(context.queue, {.shape = heads_}, qkv, saved_.wide_q, saved_.wide_k,
                         saved_.v, {}, {});
  const auto prepare = [&](const Tensor& wide, const Tensor& norm, const Tensor& rstd,
                           const Tensor& x) {
    const std::int64_t width = norm.num_elems();
    context.ops.RmsNorm(context.queue, wide.Reshape({context.tokens(), width}), norm, norm_epsilon_,
                        x.Reshape({context.tokens(), width}), rstd);
    if (rope_ == nullptr) return;
    context.ops.Rope(context.queue, Rotation(context), rope_->cosine(), rope_->sine(), x);
  };
  prepare(saved_.wide_q, weights.q_norm, saved_.q_rstd, saved_.q);
  prepare(saved_.wide_k, weights.k_norm, saved_.k_rstd, saved_.k);
}

void GroupedAttention::PrepareOverHeadsBackward(BlockContext& context, const Parts<Tensor>& weights,
                                                const Parts<Gradient>& gradients, const Tensor& dq,
                                                const Tensor& dk, const Tensor& dv,
                                                const Tensor& dqkv) {
  const auto undo = [&](const Tensor& dx, const Tensor& wide, const Tensor& norm,
                        const Tensor& rstd, const Gradient& dnorm) {
    if (rope_ != nullptr) {
      RopeForm back = Rotation(context);
      back.inverse = true;
      context.ops.Rope(context.queue, back, rope_->cosine(), rope_->sine(), dx);
    }
    const std::int64_t width = norm.num_elems();
    const Tensor wide_dx = dx.Reshape({context.tokens(), width});
    context.ops.RmsNormBackward(context.queue, wide_dx, wide.Reshape({context.tokens(), width}),
                                norm, rstd, /*accumulate=*/false, wide_dx, dnorm);
  };
  undo(dq, saved_.wide_q, weights.q_norm, saved_.q_rstd, gradients.q_norm);
  undo(dk, saved_.wide_k, weights.k_norm, saved_.k_rstd, gradients.k_norm);
  context.ops.QkvPrepareBackward(context.queue, {.shape = heads_}, dq, dk, dv, {}, {}, {}, dqkv, {},
                                 {});
}

void GroupedAttention::Forward(BlockContext& context, std::span<const Tensor> weights,
                               const Tensor& x, const Tensor& y) {
  const std::int64_t heads = heads_.num_heads;
  const std::int64_t group_heads = heads_.num_kv_heads;
  const std::int64_t head_dim = heads_.head_dim;
  const std::int64_t tokens = context.tokens();
  Ops& ops = context.ops;
  Queue& queue = context.queue;
  Arena& arena = context.arena;
  const Parts<Tensor> w = Unpack(weights);

  saved_ = {};
  saved_.x = x;
  saved_.q = AllocateHeads(context, heads);
  saved_.k = AllocateHeads(context, group_heads);
  saved_.o = AllocateHeads(context, heads);
  saved_.lse = arena.Allocate(context.statistics(), {context.batch, heads, context.seq});
  const auto project = [&] {
    const Tensor qkv = arena.Allocate(context.compute, {tokens, qkv_size_});
    Linear(context, x, w.qkv, w.qkv_bias, qkv);
    return qkv;
  };
  if (has_qk_norm_) {
    // The backward of the norms reads the projection, so values need no copy.
    saved_.q_rstd = arena.Allocate(context.statistics(), {tokens * heads});
    saved_.k_rstd = arena.Allocate(context.statistics(), {tokens * group_heads});
    saved_.qkv = project();
    saved_.v = ValuesIn(context, saved_.qkv);
    ops.QkvPrepare(queue, Form(context, w), saved_.qkv, saved_.q, saved_.k, {}, saved_.q_rstd,
                   saved_.k_rstd);
  } else if (has_wide_norm_) {
    saved_.q_rstd = arena.Allocate(context.statistics(), {tokens});
    saved_.k_rstd = arena.Allocate(context.statistics(), {tokens});
    saved_.wide_q = AllocateHeads(context, heads);
    saved_.wide_k = AllocateHeads(context, group_heads);
    saved_.v = AllocateHeads(context, group_heads);
    const ArenaScope scope(arena);
    PrepareOverHeads(context, w, project());
  } else {
    saved_.v = AllocateHeads(context, group_heads);
    const ArenaScope scope(arena);
    ops.QkvPrepare(queue, Form(context, w), project(), saved_.q, saved_.k, saved_.v, {}, {});
  }
  ops.Attention(queue, Shape(context), saved_.q, saved_.k, saved_.v, saved_.o, saved_.lse);
  Linear(context, saved_.o.Reshape({tokens, heads * head_dim}), w.proj, w.proj_bias, y);
}

void GroupedAttention::Backward(BlockContext& context, std::span<const Tensor> weights,
                                std::span<const Gradient> gradients, const Tensor& dy,
                                const Tensor& dx) {
  const std::int64_t heads = heads_.num_heads;
  const std::int64_t group_heads = heads_.num_kv_heads;
  const std::int64_t head_dim = heads_.head_dim;
  const std::int64_t tokens = context.tokens();
  Ops& ops = context.ops;
  Queue& queue = context.queue;
  const Parts<Tensor> w = Unpack(weights);
  const Parts<Gradient> g = Unpack(gradients);

  const ArenaScope scope(context.arena);
  const Tensor dq = AllocateHeads(context, heads);
  const Tensor dk = AllocateHeads(context, group_heads);
  const Tensor dqkv = context.arena.Allocate(context.compute, {tokens, qkv_size_});
  const Tensor dv = has_qk_norm_ ? ValuesIn(context, dqkv) : AllocateHeads(context, group_heads);
  {
    const ArenaScope output_scope(context.arena);
    const Tensor d_o = AllocateHeads(context, heads);
    LinearBackward(context, dy, saved_.o.Reshape({tokens, heads * head_dim}), w.proj,
                   d_o.Reshape({tokens, heads * head_dim}), g.proj, g.proj_bias);
    ops.AttentionBackward(queue, Shape(context), d_o, saved_.q, saved_.k, saved_.v, saved_.o,
                          saved_.lse, dq, dk, dv);
  }
  if (has_wide_norm_) {
    PrepareOverHeadsBackward(context, w, g, dq, dk, dv, dqkv);
  } else {
    ops.QkvPrepareBackward(queue, Form(context, w), dq, dk, has_qk_norm_ ? Tensor() : dv,
                           saved_.qkv, saved_.q_rstd, saved_.k_rstd, dqkv, g.q_norm, g.k_norm);
  }
  LinearBackward(context, dqkv, saved_.x, w.qkv, dx, g.qkv, g.qkv_bias);
}

}  // namespace ckpt::trainer
