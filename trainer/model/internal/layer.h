// Layer: one decoder layer.
#ifndef CKPT_TRAINER_MODEL_INTERNAL_LAYER_H_
#define CKPT_TRAINER_MODEL_INTERNAL_LAYER_H_

#include <cstddef>
#include <memory>
#include <span>
#include <variant>
#include <vector>

#include "trainer/model/block.h"
#include "trainer/model/internal/attention.h"
#include "trainer/model/internal/mlp.h"
#include "trainer/model/internal/norm.h"
#include "trainer/model/internal/rope_table.h"
#include "trainer/model/model_config.h"
#include "trainer/model/moe.h"
#include "trainer/params/param_spec.h"

namespace ckpt::trainer {

// What all layers of a model share. Outlives the layer.
struct LayerSurroundings {
  const RopeTable* rope = nullptr;  // null: no rotary positions
  MoeRuntime moe = {};
  Tensor expert_bias = {};    // [E] of the statistics' dtype; null without expert bias
  Tensor expert_counts = {};  // int64 [E]; null in a layer without experts
};

// The parameters of layer `index`, "decoder.layers.<index>", on a rank that holds the experts of
// `place`; in the order of the tensors that the layer is given.
[[nodiscard]] std::vector<ParamSpec> LayerParams(const ModelConfig& config, int index,
                                                 ExpertPlace place);

// h = x + attention(norm(x)); y = h + feed_forward(norm(h)). With norms behind, h = x +
// norm(attention(x)); y = h + norm(feed_forward(h)). The last sum is left to the next layer.
//
// Forward keeps what Backward needs until the next Forward.
class Layer {
 public:
  Layer(const ModelConfig& config, int index, const LayerSurroundings& surroundings);

  // From the stream `in` to the stream `out`, whose two tensors are written. The sum of `in`
  // overwrites its delta, if it has one. Do not change that sum, nor out.x, before Backward.
  //
  // If no Backward follows, out.delta may be the sum of `in`. If in.delta is not null, out.x may be
  // in.x.
  //
  // aux_loss [1] += the auxiliary losses, and the rows of experts are counted. If aux_loss is null,
  // neither happens, as in an evaluation.
  void Forward(BlockContext& context, std::span<const Tensor> weights, const Residual& in,
               const Residual& out, const Tensor& aux_loss);
  // Where the memory begins in the arena that Forward allocated and that Recompute allocates and
  // computes again. What is before it, the routing, stays until Backward.
  [[nodiscard]] const Arena::Mark& recomputed() const { return recomputed_; }
  // What Backward needs of the last Forward; x [T, H] is the sum that it began with.
  void Recompute(BlockContext& context, std::span<const Tensor> weights, const Tensor& x);
  // `residual` [T, H] holds dy and is overwritten by dx. `aux_scale` multiplies the gradient of the
  // auxiliary losses.
  void Backward(BlockContext& context, std::span<const Tensor> weights,
                std::span<const Gradient> gradients, double aux_scale, const Tensor& residual);

 private:
  // What the layer was given for its parameters, divided among its blocks.
  template <typename T>
  struct Parts {
    std::span<const T> attention_norm, attention, mlp_norm, mlp;
  };
  template <typename T>
  [[nodiscard]] Parts<T> Divide(std::span<const T> params) const;

  // From the stream to the input of the feed-forward block, which it returns, and to h.
  Tensor ForwardAttention(BlockContext& context, const Parts<Tensor>& weights, const Residual& in,
                          const Tensor& h);
  // The same with a norm behind: h is that input.
  Tensor ForwardAttentionAndNorm(BlockContext& context, const Parts<Tensor>& weights,
                                 const Residual& in, const Tensor& h);
  void BackwardWithNormsBehind(BlockContext& context, const Parts<Tensor>& weights,
                               const Parts<Gradient>& gradients, double aux_scale,
                               const Tensor& residual);
  void BackwardMlp(BlockContext& context, const Parts<Tensor>& weights,
                   const Parts<Gradient>& gradients, double aux_scale, const Tensor& dy,
                   const Tensor& dx);

  const bool has_norms_behind_;
  Norm attention_norm_;
  std::unique_ptr<Attention> attention_;
  Norm mlp_norm_;
  std::variant<Mlp, MoeBlock> mlp_;
  std::size_t num_norm_params_ = 0;
  std::size_t num_attention_params_ = 0;
  Arena::Mark recomputed_;
};

}  // namespace ckpt::trainer

#endif  // CKPT_TRAINER_MODEL_INTERNAL_LAYER_H_
