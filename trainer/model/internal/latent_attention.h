// LatentAttention: multi-head latent attention (DeepSeek-V2 and V3).
#ifndef CKPT_TRAINER_MODEL_INTERNAL_LATENT_ATTENTION_H_
#define CKPT_TRAINER_MODEL_INTERNAL_LATENT_ATTENTION_H_

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "trainer/model/internal/attention.h"

namespace ckpt::trainer {

// Keys and values of all heads are computed from one latent per token, which has its own norm.
// Queries are too, from another latent, if q_lora_rank > 0. A head's query and key are [without
// position (dn) | rotated (dr)]. The rotated part of the key is computed from the hidden state
// directly and is the same for all heads.
//
// DeepSeek-AI: "DeepSeek-V2: A Strong, Economical, and Efficient Mixture-of-Experts Language
// Model", section 2.1.
class LatentAttention final : public Attention {
 public:
  // `prefix`: "decoder.layers.3.self_attention." REQUIRES: config.mla; `rope` rotates dr elements.
  LatentAttention(const ModelConfig& config, int layer, std::string prefix, const RopeTable& rope);

  [[nodiscard]] std::vector<ParamSpec> Params() const override;
  void Forward(BlockContext& context, std::span<const Tensor> weights, const Tensor& x,
               const Tensor& y) override;
  void Backward(BlockContext& context, std::span<const Tensor> weights,
                std::span<const Gradient> gradients, const Tensor& dy, const Tensor& dx) override;

 private:
  template <typename T>
  struct Parts {
    T q, q_down, q_down_bias, q_norm, q_up;
    T kv_down, kv_down_bias, kv_norm, kv_up;
    T proj, proj_bias;
  };
  template <typename T>
  [[nodiscard]] Parts<T> Unpack(std::span<const T> params) const;
  [[nodiscard]] bool has_query_latent() const { return mla_.q_lora_rank > 0; }
  [[nodiscard]] AttentionShape Shape(const BlockContext& context) const;
  // Allocates [tokens, columns] of the compute dtype.
  [[nodiscard]] static Tensor Allocate(BlockContext& context, std::int64_t columns);

  // Each fills its part of `saved_`, already allocated, from saved_.x.
  void ForwardQueries(BlockContext& context, const Parts<Tensor>& w);
  void ForwardKeysAndValues(BlockContext& context, const Parts<Tensor>& w);
  // dx is overwritten by the queries' part, and the part of keys and values is added to it. dq is
  // overwritten too.
  void BackwardQueries(BlockContext& context, const Parts<Tensor>& w, const Parts<Gradient>& g,
                       const Tensor& dq, const Tensor& dx);
  void BackwardKeysAndValues(BlockContext& context, const Parts<Tensor>& w,
                             const Parts<Gradient>& g, const Tensor& dk, const Tensor& dv,
                             const Tensor& dx);
  // Rotates the last dr elements of every head of x [T, heads, D] in place.
  void Rotate(BlockContext& context, bool inverse, const Tensor& x) const;

  const MlaConfig mla_;
  const MlaShape heads_;
  const std::int64_t hidden_size_;
  const std::int64_t qk_dim_;   // dn + dr
  const std::int64_t q_size_;   // N·(dn + dr)
  const std::int64_t kv_size_;  // N·(dn + dv)
  const std::int64_t o_size_;   // N·dv
  const std::int64_t window_;
  const bool has_output_bias_;
  const double scale_;
  const double std_;
  const double residual_std_;
  const std::string prefix_;
  const RopeTable& rope_;

  struct Saved {
    Tensor x;
    Tensor q_latent, q_rstd, q_normed;
    Tensor kv_latent, kv_rstd, kv_normed;
    Tensor q, k, v;  // as the attention kernel reads them
    Tensor o, lse;
  };
  Saved saved_;
};

}  // namespace ckpt::trainer

#endif  // CKPT_TRAINER_MODEL_INTERNAL_LATENT_ATTENTION_H_
