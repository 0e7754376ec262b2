// Keys of what a run stores, in Megatron's flat spelling.
#ifndef CKPT_FORMATS_FSDP_DTENSOR_INTERNAL_RUN_KEYS_H_
#define CKPT_FORMATS_FSDP_DTENSOR_INTERNAL_RUN_KEYS_H_

#include <string_view>

namespace ckpt::fsdp_dtensor {

inline constexpr std::string_view kModel = "model.";
inline constexpr std::string_view kOptimizerState = "optimizer.state.";
inline constexpr std::string_view kGroupMeta = "optimizer.param_to_group_meta.";
inline constexpr std::string_view kScheduler = "opt_param_scheduler.";
inline constexpr std::string_view kRandomStates = "rng_state.";
inline constexpr std::string_view kTrackerStates = "rng_tracker_states.";
inline constexpr std::string_view kArgs = "args";
// Modules that a parameter stands in while it is trained: the model's wrapper, and two more that
// only the optimizer sees.
inline constexpr std::string_view kModelWrappers = "module.";
inline constexpr std::string_view kOptimizerWrappers = "module.module.module.";
// The halves of a SwiGLU fc1, which the live model has in one piece.
inline constexpr std::string_view kGateHalf = "_w";
inline constexpr std::string_view kUpHalf = "_v";

}  // namespace ckpt::fsdp_dtensor

#endif  // CKPT_FORMATS_FSDP_DTENSOR_INTERNAL_RUN_KEYS_H_
