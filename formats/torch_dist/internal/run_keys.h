// Keys of what a run stores beside the model.
#ifndef CKPT_FORMATS_TORCH_DIST_INTERNAL_RUN_KEYS_H_
#define CKPT_FORMATS_TORCH_DIST_INTERNAL_RUN_KEYS_H_

#include <string_view>

namespace ckpt::torch_dist {

inline constexpr std::string_view kOptimizer = "optimizer.";
// A tensor for each parameter, or buffers of them.
inline constexpr std::string_view kOptimizerState = "optimizer.state.";
inline constexpr std::string_view kOptimizerBuffers = "optimizer.distributed.";
// Before the keys of one of several optimizers, where these are told apart.
inline constexpr std::string_view kChained = "chained_";
// The exact value of a weight in fully_reshardable form.
inline constexpr std::string_view kMainWeight = "param";
inline constexpr std::string_view kOperations = "num_floating_point_operations_so_far";

}  // namespace ckpt::torch_dist

#endif  // CKPT_FORMATS_TORCH_DIST_INTERNAL_RUN_KEYS_H_
