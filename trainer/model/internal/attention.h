// Attention: the interface of attention blocks, and grouped-query attention.
#ifndef CKPT_TRAINER_MODEL_INTERNAL_ATTENTION_H_
#define CKPT_TRAINER_MODEL_INTERNAL_ATTENTION_H_

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "trainer/model/block.h"
#include "trainer/model/internal/rope_table.h"
#include "trainer/model/model_config.h"
#include "trainer/params/param_spec.h"

namespace ckpt::trainer {

// Causal self-attention of one layer, with its projections.
//
// Forward keeps what Backward needs until the next Forward.
class Attention {
 public:
  virtual ~Attention() = default;

  [[nodiscard]] virtual std::vector<ParamSpec> Params() const = 0;
  // y = attention(x), both [T, H]. Do not change `x` before Backward.
  virtual void Forward(BlockContext& context, std::span<const Tensor> weights, const Tensor& x,
                       const Tensor& y) = 0;
  // dx is overwritten.
  virtual void Backward(BlockContext& context, std::span<const Tensor> weights,
                        std::span<const Gradient> gradients, const Tensor& dy,
                        const Tensor& dx) = 0;
};

// N query heads share G key and value heads. One projection makes queries, keys and values,
// interleaved as in Megatron (QkvShape).
class GroupedAttention final : public Attention {
 public:
  // `prefix`: "decoder.layers.3.self_attention."; `rope` is null in models without rotary
  // positions.
  GroupedAttention(const ModelConfig& config, int layer, std::string prefix, const RopeTable* rope);

  [[nodiscard]] std::vector<ParamSpec> Params() const override;
  void Forward(BlockContext& context, std::span<const Tensor> weights, const Tensor& x,
               const Tensor& y) override;
  void Backward(BlockContext& context, std::span<const Tensor> weights,
                std::span<const Gradient> gradients, const Tensor& dy, const Tensor& dx) override;

 private:
  template <typename T>
  struct Parts {
    T qkv, qkv_bias, q_norm, k_norm, proj, proj_bias;
  };
  template <typename T>
  [[nodiscard]] Parts<T> Unpack(std::span<const T> params) const;
  [[nodiscard]] AttentionShape Shape(const BlockContext& context) const;
  [[nodiscard]] Tensor AllocateHeads(BlockContext& context, std::int64_t num_heads) const;
  // The rotation of queries and keys; its tables are rope_'s. Only with rotary positions.
  [[nodiscard]] RopeForm Rotation(const BlockContext& context) const;
  // What is done to every head: the rotation, and norms of heads.
  [[nodiscard]] QkvForm Form(const BlockContext& context, const Parts<Tensor>& weights) const;
  // From the projection to queries and keys if the norms are over all heads of a token. The
  // projection has these heads in several places, so splitting, norm and rotation are a pass each.
  void PrepareOverHeads(BlockContext& context, const Parts<Tensor>& weights, const Tensor& qkv);
  void PrepareOverHeadsBackward(BlockContext& context, const Parts<Tensor>& weights,
                                const Parts<Gradient>& gradients, const Tensor& dq,
                                const Tensor& dk, const Tensor& dv, const Tensor& dqkv);
  // The values [T, G, D] within a projection (AttentionShape::v_stride).
  [[nodiscard]] Tensor ValuesIn(BlockContext& context, const Tensor& qkv) const;

  const QkvShape heads_;
  const std::int64_t hidden_size_;
  const std::int64_t qkv_size_;  // (N + 2G)·D
  const std::int64_t window_;
  const double scale_;
  const bool has_qkv_bias_;
  const bool has_output_bias_;
  const bool has_qk_norm_;    // over every head
  const bool has_wide_norm_;  // over all heads of a token
  const double norm_epsilon_;
  const double std_;
  const double residual_std_;
  const std::string prefix_;
  const RopeTable* const rope_;

  struct Saved {
    Tensor x;
    Tensor qkv;             // the projection, with norms; v is in it
    Tensor q, k, v;         // as the attention kernel reads them
    Tensor wide_q, wide_k;  // what norms over all heads were given
    Tensor q_rstd, k_rstd;
    Tensor o, lse;
  };
  Saved saved_;
};

}  // namespace ckpt::trainer

#endif  // CKPT_TRAINER_MODEL_INTERNAL_ATTENTION_H_
