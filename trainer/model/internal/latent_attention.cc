#include "trainer/model/internal/latent_attention.h"

#include <cmath>
#include <utility>

#include "core/base/check.h"
#include "trainer/model/internal/block_params.h"
#include "trainer/model/internal/linear.h"

namespace ckpt::trainer {

LatentAttention::LatentAttention(const ModelConfig& config, int layer, std::string prefix,
                                 const RopeTable& rope)
    : mla_(config.mla.value()),
      heads_{.num_heads = config.num_attention_heads,
             .nope_dim = mla_.qk_head_dim,
             .rope_dim = mla_.qk_pos_emb_head_dim,
             .v_dim = mla_.v_head_dim},
      hidden_size_(config.hidden_size),
      qk_dim_(heads_.nope_dim + heads_.rope_dim),
      q_size_(heads_.num_heads * qk_dim_),
      kv_size_(heads_.num_heads * (heads_.nope_dim + heads_.v_dim)),
      o_size_(heads_.num_heads * heads_.v_dim),
      window_(config.window_size.at(static_cast<std::size_t>(layer))),
      has_output_bias_(config.attention_output_bias),
      scale_(config.softmax_scale != 0 ? config.softmax_scale
                                       : 1 / std::sqrt(static_cast<double>(qk_dim_))),
      std_(config.init_method_std),
      residual_std_(ResidualInitStd(config)),
      prefix_(std::move(prefix)),
      rope_(rope) {
  CKPT_CHECK(rope_.dim() == heads_.rope_dim);
}

std::vector<ParamSpec> LatentAttention::Params() const {
  const auto matrix = [&](const char* name, std::int64_t rows, std::int64_t columns) {
    return MatrixSpec(prefix_ + name + ".weight", rows, columns, std_);
  };
  std::vector<ParamSpec> params;
  if (has_query_latent()) {
    params.push_back(matrix("linear_q_down_proj", mla_.q_lora_rank, hidden_size_));
    if (mla_.down_bias) {
      params.push_back(BiasSpec(prefix_ + "linear_q_down_proj.bias", mla_.q_lora_rank));
    }
    params.push_back(NormWeightSpec(prefix_ + "q_layernorm.weight", mla_.q_lora_rank));
    params.push_back(matrix("linear_q_up_proj", q_size_, mla_.q_lora_rank));
  } else {
    params.push_back(matrix("linear_q_proj", q_size_, hidden_size_));
  }
  const std::int64_t kv_down_rows = mla_.kv_lora_rank + heads_.rope_dim;
  params.push_back(matrix("linear_kv_down_proj", kv_down_rows, hidden_size_));
  if (mla_.down_bias) {
    params.push_back(BiasSpec(prefix_ + "linear_kv_down_proj.bias", kv_down_rows));
  }
  params.push_back(NormWeightSpec(prefix_ + "kv_layernorm.weight", mla_.kv_lora_rank));
  params.push_back(matrix("linear_kv_up_proj", kv_size_, mla_.kv_lora_rank));
  params.push_back(
      MatrixSpec(prefix_ + "linear_proj.weight", hidden_size_, o_size_, residual_std_));
  if (has_output_bias_) params.push_back(BiasSpec(prefix_ + "linear_proj.bias", hidden_size_));
  return params;
}

template <typename T>
LatentAttention::Parts<T> LatentAttention::Unpack(std::span<const T> params) const {
  ParamCursor<T> cursor(params);
  Parts<T> unpacked;
  unpacked.q_down = cursor.NextIf(has_query_latent());
  unpacked.q_down_bias = cursor.NextIf(has_query_latent() && mla_.down_bias);
  unpacked.q_norm = cursor.NextIf(has_query_latent());
  unpacked.q_up = cursor.NextIf(has_query_latent());
  unpacked.q = cursor.NextIf(!has_query_latent());
  unpacked.kv_down = cursor.Next();
  unpacked.kv_down_bias = cursor.NextIf(mla_.down_bias);
  unpacked.kv_norm = cursor.Next();
  unpacked.kv_up = cursor.Next();
  unpacked.proj = cursor.Next();
  unpacked.proj_bias = cursor.NextIf(has_output_bias_);
  return unpacked;
}

AttentionShape LatentAttention::Shape(const BlockContext& context) const {
  return {.batch = context.batch,
          .seq = context.seq,
          .num_heads = heads_.num_heads,
          .num_kv_heads = heads_.num_heads,
          .qk_dim = qk_dim_,
          .v_dim = heads_.v_dim,
          .scale = scale_,
          .window = window_,
          .examples = context.layout.examples};
}

Tensor LatentAttention::Allocate(BlockContext& context, std::int64_t columns) {
  return context.arena.Allocate(context.compute, {context.tokens(), columns});
}

void LatentAttention::Rotate(BlockContext& context, bool inverse, const Tensor& x) const {
  const RopeForm form{.seq = context.seq,
                      .positions = context.layout.positions,
                      .dim = rope_.dim(),
                      .at_front = false,
                      .interleaved = rope_.interleaved(),
                      .inverse = inverse};
  context.ops.Rope(context.queue, form, rope_.cosine(), rope_.sine(), x);
}

void LatentAttention::Forward(BlockContext& context, std::span<const Tensor> weights,
                              const Tensor& x, const Tensor& y) {
  const std::int64_t tokens = context.tokens();
  const Parts<Tensor> w = Unpack(weights);
  const DType statistics = context.statistics();

  saved_ = {};
  saved_.x = x;
  if (has_query_latent()) {
    saved_.q_latent = Allocate(context, mla_.q_lora_rank);
    saved_.q_rstd = context.arena.Allocate(statistics, {tokens});
    saved_.q_normed = Allocate(context, mla_.q_lora_rank);
  }
  saved_.kv_latent = Allocate(context, mla_.kv_lora_rank);
  saved_.kv_rstd = context.arena.Allocate(statistics, {tokens});
  saved_.kv_normed = Allocate(context, mla_.kv_lora_rank);
  saved_.q = Allocate(context, q_size_).Reshape({tokens, heads_.num_heads, qk_dim_});
  saved_.k = Allocate(context, q_size_).Reshape({tokens, heads_.num_heads, qk_dim_});
  saved_.v = Allocate(context, o_size_).Reshape({tokens, heads_.num_heads, heads_.v_dim});
  saved_.o = Allocate(context, o_size_).Reshape({tokens, heads_.num_heads, heads_.v_dim});
  saved_.lse = context.arena.Allocate(statistics, {context.batch, heads_.num_heads, context.seq});

  ForwardQueries(context, w);
  ForwardKeysAndValues(context, w);
  context.ops.Attention(context.queue, Shape(context), saved_.q, saved_.k, saved_.v, saved_.o,
                        saved_.lse);
  Linear(context, saved_.o.Reshape({tokens, o_size_}), w.proj, w.proj_bias, y);
}

void LatentAttention::ForwardQueries(BlockContext& context, const Parts<Tensor>& w) {
  const Tensor q = saved_.q.Reshape({context.tokens(), q_size_});
  if (has_query_latent()) {
    Linear(context, saved_.x, w.q_down, w.q_down_bias, saved_.q_latent);
    context.ops.RmsNorm(context.queue, saved_.q_latent, w.q_norm, mla_.norm_epsilon,
                        saved_.q_normed, saved_.q_rstd);
    Linear(context, saved_.q_normed, w.q_up, {}, q);
  } else {
    Linear(context, saved_.x, w.q, {}, q);
  }
  Rotate(context, /*inverse=*/false, saved_.q);
}

void LatentAttention::ForwardKeysAndValues(BlockContext& context, const Parts<Tensor>& w) {
  const std::int64_t tokens = context.tokens();
  const ArenaScope scope(context.arena);
  const Tensor down = Allocate(context, mla_.kv_lora_rank + heads_.rope_dim);
  const Tensor k_rope = Allocate(context, heads_.rope_dim);
  const Tensor kv = Allocate(context, kv_size_);

  Linear(context, saved_.x, w.kv_down, w.kv_down_bias, down);
  context.ops.SplitColumns(context.queue, down, saved_.kv_latent, k_rope);
  Rotate(context, /*inverse=*/false, k_rope.Reshape({tokens, 1, heads_.rope_dim}));
  context.ops.RmsNorm(context.queue, saved_.kv_latent, w.kv_norm, mla_.norm_epsilon,
                      saved_.kv_normed, saved_.kv_rstd);
  Linear(context, saved_.kv_normed, w.kv_up, {}, kv);
  context.ops.SplitMlaKv(context.queue, heads_,
                         kv.Reshape({tokens, heads_.num_heads, heads_.nope_dim + heads_.v_dim}),
                         k_rope, saved_.k, saved_.v);
}

void LatentAttention::Backward(BlockContext& context, std::span<const Tensor> weights,
                               std::span<const Gradient> gradients, const Tensor& dy,
                               const Tensor& dx) {
  const std::int64_t tokens = context.tokens();
  const Parts<Tensor> w = Unpack(weights);
  const Parts<Gradient> g = Unpack(gradients);

  const ArenaScope scope(context.arena);
  const Tensor dq = Allocate(context, q_size_).Reshape({tokens, heads_.num_heads, qk_dim_});
  const Tensor dk = Allocate(context, q_size_).Reshape({tokens, heads_.num_heads, qk_dim_});
  const Tensor dv = Allocate(context, o_size_).Reshape({tokens, heads_.num_heads, heads_.v_dim});
  {
    const ArenaScope output_scope(context.arena);
    const Tensor d_o = Allocate(context, o_size_);
    LinearBackward(context, dy, saved_.o.Reshape({tokens, o_size_}), w.proj, d_o, g.proj,
                   g.proj_bias);
    context.ops.AttentionBackward(context.queue, Shape(context),
                                  d_o.Reshape({tokens, heads_.num_heads, heads_.v_dim}), saved_.q,
                                  saved_.k, saved_.v, saved_.o, saved_.lse, dq, dk, dv);
  }
  BackwardQueries(context, w, g, dq, dx);
  BackwardKeysAndValues(context, w, g, dk, dv, dx);
}

void LatentAttention::BackwardQueries(BlockContext& context, const Parts<Tensor>& w,
                                      const Parts<Gradient>& g, const Tensor& dq,
                                      const Tensor& dx) {
  Rotate(context, /*inverse=*/true, dq);
  const Tensor dq_rows = dq.Reshape({context.tokens(), q_size_});
  if (!has_query_latent()) {
    LinearBackward(context, dq_rows, saved_.x, w.q, dx, g.q, {});
    return;
  }
  const ArenaScope scope(context.arena);
  const Tensor dlatent = Allocate(context, mla_.q_lora_rank);
  LinearBackward(context, dq_rows, saved_.q_normed, w.q_up, dlatent, g.q_up, {});
  context.ops.RmsNormBackward(context.queue, dlatent, saved_.q_latent, w.q_norm, saved_.q_rstd,
                              /*accumulate=*/false, dlatent, g.q_norm);
  LinearBackward(context, dlatent, saved_.x, w.q_down, dx, g.q_down, g.q_down_bias);
}

void LatentAttention::BackwardKeysAndValues(BlockContext& context, const Parts<Tensor>& w,
                                            const Parts<Gradient>& g, const Tensor& dk,
                                            const Tensor& dv, const Tensor& dx) {
  const std::int64_t tokens = context.tokens();
  const ArenaScope scope(context.arena);
  const Tensor dkv = Allocate(context, kv_size_);
  const Tensor dk_rope = Allocate(context, heads_.rope_dim);
  const Tensor dlatent = Allocate(context, mla_.kv_lora_rank);
  const Tensor ddown = Allocate(context, mla_.kv_lora_rank + heads_.rope_dim);

  context.ops.SplitMlaKvBackward(
      context.queue, heads_, dk, dv,
      dkv.Reshape({tokens, heads_.num_heads, heads_.nope_dim + heads_.v_dim}), dk_rope);
  Rotate(context, /*inverse=*/true, dk_rope.Reshape({tokens, 1, heads_.rope_dim}));
  LinearBackward(context, dkv, saved_.kv_normed, w.kv_up, dlatent, g.kv_up, {});
  context.ops.RmsNormBackward(context.queue, dlatent, saved_.kv_latent, w.kv_norm, saved_.kv_rstd,
                              /*accumulate=*/false, dlatent, g.kv_norm);
  context.ops.MergeColumns(context.queue, dlatent, dk_rope, ddown);
  LinearBackwardData(context, ddown, w.kv_down, /*accumulate=*/true, dx);
  LinearBackwardWeights(context, ddown, saved_.x, g.kv_down, g.kv_down_bias);
}

}  // namespace ckpt::trainer
