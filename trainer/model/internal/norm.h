// Norm: RMS norm or layer norm of the residual stream.
#ifndef CKPT_TRAINER_MODEL_INTERNAL_NORM_H_
#define CKPT_TRAINER_MODEL_INTERNAL_NORM_H_

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "trainer/model/block.h"
#include "trainer/model/model_config.h"
#include "trainer/params/param_spec.h"

namespace ckpt::trainer {

// The residual stream between blocks: x + delta, both [T, H]. The next norm adds them, so that no
// pass over them only adds. Null delta: x alone.
struct Residual {
  Tensor x;
  Tensor delta = {};
};

// Forward keeps what Backward needs until the next Forward.
class Norm {
 public:
  // `prefix`: "decoder.final_layernorm."
  Norm(const ModelConfig& config, std::string prefix);

  [[nodiscard]] std::vector<ParamSpec> Params() const;
  // y [T, H] = norm(sum), where sum = x + delta of `stream`. The sum overwrites delta, and Forward
  // returns it; without delta it is x. Do not change it before Backward.
  Tensor Forward(BlockContext& context, std::span<const Tensor> weights, const Residual& stream,
                 const Tensor& y);
  // Writes the gradient of the sum to dx, or adds it if `accumulate`.
  void Backward(BlockContext& context, std::span<const Tensor> weights,
                std::span<const Gradient> gradients, const Tensor& dy, bool accumulate,
                const Tensor& dx);

 private:
  const Normalization kind_;
  const double epsilon_;
  const std::int64_t hidden_size_;
  const std::string prefix_;

  struct Saved {
    Tensor sum;
    Tensor statistics;  // 1/σ [T]; for layer norms mean and 1/σ [T, 2]
  };
  Saved saved_;
};

}  // namespace ckpt::trainer

#endif  // CKPT_TRAINER_MODEL_INTERNAL_NORM_H_
