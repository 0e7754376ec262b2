// SharedExperts: the expert of a mixture that every token uses.
#ifndef CKPT_TRAINER_MODEL_INTERNAL_SHARED_EXPERTS_H_
#define CKPT_TRAINER_MODEL_INTERNAL_SHARED_EXPERTS_H_

#include <span>
#include <string>
#include <vector>

#include "trainer/model/block.h"
#include "trainer/model/internal/mlp.h"
#include "trainer/model/model_config.h"
#include "trainer/params/param_spec.h"

namespace ckpt::trainer {

// y = mlp(x); with a gate y = σ(gate_weight·x)·mlp(x), one factor for each token.
//
// Forward keeps what Backward needs until the next Forward.
class SharedExperts {
 public:
  // `prefix`: "decoder.layers.3.mlp.shared_experts."
  SharedExperts(const ModelConfig& config, std::string prefix);

  [[nodiscard]] std::vector<ParamSpec> Params() const;
  // As Mlp::Forward and Mlp::Backward.
  void Forward(BlockContext& context, std::span<const Tensor> weights, const Tensor& x,
               const Tensor& y);
  void Backward(BlockContext& context, std::span<const Tensor> weights,
                std::span<const Gradient> gradients, const Tensor& dy, const Tensor& dx);

 private:
  // What was given for the parameters of the MLP; the gate's is the last one.
  template <typename T>
  [[nodiscard]] std::span<const T> OfMlp(std::span<const T> params) const {
    return params.first(params.size() - (has_gate_ ? 1 : 0));
  }

  const bool has_gate_;
  const std::int64_t hidden_size_;
  const double std_;
  const std::string prefix_;
  Mlp mlp_;

  // The gate is a router with one expert, whose score is the factor. All are [T, 1].
  struct Gate {
    Tensor x;
    Tensor scores, experts, weights;
  };
  Gate gate_;
};

}  // namespace ckpt::trainer

#endif  // CKPT_TRAINER_MODEL_INTERNAL_SHARED_EXPERTS_H_
