// Mlp: the dense feed-forward block.
#ifndef CKPT_TRAINER_MODEL_INTERNAL_MLP_H_
#define CKPT_TRAINER_MODEL_INTERNAL_MLP_H_

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "trainer/model/block.h"
#include "trainer/model/model_config.h"
#include "trainer/params/param_spec.h"

namespace ckpt::trainer {

// y = p·W₂·act(W₁·x), where p is a weight of the token, or 1. With biases it is always 1.
// linear_fc1 is [2F, H], gate then up, with SwiGLU and [F, H] with GELU; linear_fc2 is [H, F].
//
// Forward keeps what Backward needs until the next Forward.
class Mlp {
 public:
  // `prefix`: "decoder.layers.3.mlp."
  Mlp(const ModelConfig& config, std::string prefix);

  [[nodiscard]] std::vector<ParamSpec> Params() const;
  // y = mlp(x), both [T, H]. Do not change `x` before Backward. If y is null, only what Backward
  // needs is computed. token_weights [T], of the statistics' dtype: p; null: 1.
  void Forward(BlockContext& context, std::span<const Tensor> weights, const Tensor& x,
               const Tensor& y, const Tensor& token_weights = {});
  // dx is overwritten, and dtoken_weights [T], which is null if there are no weights.
  void Backward(BlockContext& context, std::span<const Tensor> weights,
                std::span<const Gradient> gradients, const Tensor& dy, const Tensor& dx,
                const Tensor& dtoken_weights = {});

 private:
  template <typename T>
  struct Parts {
    T fc1, fc1_bias, fc2, fc2_bias;
  };
  template <typename T>
  [[nodiscard]] Parts<T> Unpack(std::span<const T> params) const;

  const Activation activation_;
  const bool has_bias_;
  const std::int64_t hidden_size_;
  const std::int64_t ffn_size_;
  const std::int64_t fc1_rows_;
  const double std_;
  const double residual_std_;
  const std::string prefix_;

  struct Saved {
    Tensor x;
    Tensor token_weights;
    Tensor projected;  // W₁·x
    Tensor activated;  // p·act(W₁·x); null if it is computed again
  };
  Saved saved_;
};

}  // namespace ckpt::trainer

#endif  // CKPT_TRAINER_MODEL_INTERNAL_MLP_H_
