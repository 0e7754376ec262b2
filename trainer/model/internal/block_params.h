// How a block lists its parameters and finds them among a unit's tensors.
#ifndef CKPT_TRAINER_MODEL_INTERNAL_BLOCK_PARAMS_H_
#define CKPT_TRAINER_MODEL_INTERNAL_BLOCK_PARAMS_H_

#include <cmath>
#include <cstdint>
#include <span>
#include <string>
#include <utility>

#include "core/base/check.h"
#include "trainer/device/tensor.h"
#include "trainer/model/model_config.h"
#include "trainer/params/param_spec.h"

namespace ckpt::trainer {

inline ParamSpec MatrixSpec(std::string name, std::int64_t rows, std::int64_t columns, double std) {
  return {.name = std::move(name), .shape = {rows, columns}, .init = {.std = std}};
}
// Biases start at 0 and the weights of norms at 1.
inline ParamSpec BiasSpec(std::string name, std::int64_t size) {
  return {.name = std::move(name), .shape = {size}, .init = {}};
}
inline ParamSpec NormWeightSpec(std::string name, std::int64_t size) {
  return {.name = std::move(name), .shape = {size}, .init = {.constant = 1}};
}

// Megatron's scaled initialisation of the matrices that write to the residual stream. A layer has
// two of them.
inline double ResidualInitStd(const ModelConfig& config) {
  return config.init_method_std / std::sqrt(2.0 * static_cast<double>(config.num_layers));
}

// Iterates over what a block was given for its parameters (`Tensor`: the weights, `Gradient`: where
// their gradients go) in the order in which the block lists its ParamSpecs.
template <typename T>
class ParamCursor {
 public:
  explicit ParamCursor(std::span<const T> params) : rest_(params) {}

  T Next() {
    CKPT_CHECK(!rest_.empty());
    const T next = rest_.front();
    rest_ = rest_.subspan(1);
    return next;
  }
  // Null for a parameter that the model does not have.
  T NextIf(bool is_present) { return is_present ? Next() : T(); }

 private:
  std::span<const T> rest_;
};

}  // namespace ckpt::trainer

#endif  // CKPT_TRAINER_MODEL_INTERNAL_BLOCK_PARAMS_H_
