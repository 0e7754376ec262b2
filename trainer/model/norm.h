// Norm: RMS norm or layer norm of the residual stream.
#ifndef CKPT_TRAINER_MODEL_NORM_H_
#define CKPT_TRAINER_MODEL_NORM_H_

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "trainer/model/block.h"
#include "trainer/model/model_config.h"
#include "trainer/params/param_spec.h"

namespace ckpt::trainer {

// Forward keeps what Backward needs until the next Forward.
class Norm {
 public:
  // `prefix`: "decoder.final_layernorm."
  Norm(const ModelConfig& config, std::string prefix);

  [[nodiscard]] std::vector<ParamSpec> Params() const;
  // y = norm(x), both [T, H]. Do not change `x` before Backward.
  void Forward(BlockContext& context, std::span<const Tensor> weights, const Tensor& x,
               const Tensor& y);
  // Adds to dx.
  void Backward(BlockContext& context, std::span<const Tensor> weights,
                std::span<const Gradient> gradients, const Tensor& dy, const Tensor& dx);

 private:
  const Normalization kind_;
  const double epsilon_;
  const std::int64_t hidden_size_;
  const std::string prefix_;

  struct Saved {
    Tensor x;
    Tensor statistics;  // 1/σ [T]; for layer norms mean and 1/σ [T, 2]
  };
  Saved saved_;
};

}  // namespace ckpt::trainer

#endif  // CKPT_TRAINER_MODEL_NORM_H_
