// Keys of what a run stores beside the model.
#ifndef CKPT_FORMATS_TORCH_DIST_INTERNAL_RUN_KEYS_H_
#define CKPT_FORMATS_TORCH_DIST_INTERNAL_RUN_KEYS_H_

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "core/tensor/dtype.h"

namespace ckpt::torch_dist {

inline constexpr std::string_view kOptimizer = "optimizer.";
// A tensor for each parameter, or buffers of them.
inline constexpr std::string_view kOptimizerState = "optimizer.state.";
inline constexpr std::string_view kOptimizerBuffers = "optimizer.distributed.";
// Before the keys of one of several optimizers, where these are told apart.
inline constexpr std::string_view kChained = "chained_";
// The exact value of a weight: in fully_reshardable form and in buffers, and in
// fully_sharded_model_space.
inline constexpr std::string_view kMainWeight = "param";
inline constexpr std::string_view kMainWeightInModelSpace = "fp32_param";
// The weights outside layers that a stage may have twice, or at a rate of their own.
inline constexpr std::string_view kEmbeddingKey = "embedding.word_embeddings.weight";
inline constexpr std::string_view kHeadKey = "output_layer.weight";

// What to do where buffers cannot be written.
inline constexpr std::string_view kOtherForm =
    "ckpt-convert --optimizer-form fully_reshardable stores the optimizer for any ranks";
// The same where the run's buffers are for weights of this dtype, and its weights have another one.
[[nodiscard]] inline std::string HintAtDType(DType dtype) {
  return "ckpt-convert --dtype " + std::string(DTypeName(dtype)) + " stores the weights so";
}

// One of several optimizers numbers its keys: "chained_1.optimizer.state.exp_avg.…".
[[nodiscard]] constexpr std::string_view WithoutNumber(std::string_view key) {
  if (!key.starts_with(kChained)) return key;
  const std::size_t dot = key.find('.');
  return dot == std::string_view::npos ? key : key.substr(dot + 1);
}

// "exp_avg" and the weight of "optimizer.state.exp_avg.decoder.layers.mlp.linear_fc2.weight".
[[nodiscard]] inline std::optional<std::pair<std::string, std::string>> StateIn(
    std::string_view key) {
  key = WithoutNumber(key);
  if (!key.starts_with(kOptimizerState)) return std::nullopt;
  key.remove_prefix(kOptimizerState.size());
  const std::size_t dot = key.find('.');
  if (dot == std::string_view::npos) return std::nullopt;
  return std::pair(std::string(key.substr(0, dot)), std::string(key.substr(dot + 1)));
}

}  // namespace ckpt::torch_dist

#endif  // CKPT_FORMATS_TORCH_DIST_INTERNAL_RUN_KEYS_H_
