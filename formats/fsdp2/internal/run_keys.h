// Keys of what a training loop stores beside the model.
#ifndef CKPT_FORMATS_FSDP2_INTERNAL_RUN_KEYS_H_
#define CKPT_FORMATS_FSDP2_INTERNAL_RUN_KEYS_H_

#include <map>
#include <optional>
#include <set>
#include <string>
#include <string_view>

#include "core/checkpoint/index.h"

namespace ckpt::fsdp2 {

// Where this program puts things; other programs may have prefixes of their own.
inline constexpr std::string_view kModel = "model.";
inline constexpr std::string_view kOptimizer = "optim.";
inline constexpr std::string_view kScheduler = "lr_scheduler.";
// Behind the optimizer's prefix.
inline constexpr std::string_view kState = "state.";
inline constexpr std::string_view kGroups = "param_groups.";
// In place of kState where the optimizer keeps nothing: an empty dictionary.
inline constexpr std::string_view kEmptyState = "state";
// What a run of Megatron's or of this program has, and torch has no place for.
inline constexpr std::string_view kRunState = "run.";
inline constexpr std::string_view kRunArgs = "run.args";
inline constexpr std::string_view kRunSchedule = "run.opt_param_scheduler.";
inline constexpr std::string_view kRunGroups = "run.param_groups.";
// Behind kRunState, where kIteration, kSamples and kOperations (run_settings.h) are too.
// Says that the scheduler is that of the program that made the run.
inline constexpr std::string_view kOwnScheduler = "has_own_scheduler";
inline constexpr std::string_view kUpdates = "finished_updates";
// Of a parameter group: the names of its parameters.
inline constexpr std::string_view kParams = "params";
// Of a parameter: how often it was updated.
inline constexpr std::string_view kStep = "step";

// A key of an optimizer: "optim." + "state." + "layers.0.weight" + "." + "exp_avg".
struct OptimizerKey {
  std::string_view optimizer;  // "optim.", "app.optimizer.", or nothing
  std::string_view section;    // kState or kGroups
  std::string_view owner;      // a parameter, or the number of a group
  std::string_view field;
};

// Nothing if the key is not one of an optimizer whose parameters have names: an optimizer's own
// state_dict numbers them, and does not say what they are.
[[nodiscard]] std::optional<OptimizerKey> ParseOptimizerKey(std::string_view key);

[[nodiscard]] bool IsNumber(std::string_view text);

// The prefixes of all optimizers in the checkpoint that keep something for a parameter.
[[nodiscard]] std::set<std::string> OptimizersIn(const CheckpointIndex& index);

// Groups with a momentum, which SGD has also where it keeps nothing: the names of parameters, or
// the numbers of groups, behind the prefix of each optimizer.
[[nodiscard]] std::map<std::string, std::set<std::string>> SgdGroupsIn(
    const CheckpointIndex& index);

}  // namespace ckpt::fsdp2

#endif  // CKPT_FORMATS_FSDP2_INTERNAL_RUN_KEYS_H_
