// The settings of a run by the names that Megatron and torch give them: one list for all formats.
//
// Each function calls `visit(name, setting)` for every setting, in the order in which it is stored:
// with a const object to write the settings or to compare them, with another one to read them.
#ifndef CKPT_CORE_TRAINING_RUN_SETTINGS_H_
#define CKPT_CORE_TRAINING_RUN_SETTINGS_H_

#include <concepts>
#include <string_view>
#include <type_traits>

#include "core/training/training_run.h"

namespace ckpt {

// Before the names of settings where those of a whole run are told apart (StoredRun::said).
inline constexpr std::string_view kOfGroups = "param_groups.";
inline constexpr std::string_view kOfSchedule = "opt_param_scheduler.";

// How far the run is. These names need no prefix.
inline constexpr std::string_view kIteration = "iteration";
inline constexpr std::string_view kSamples = "consumed_train_samples";  // an argument of Megatron's
inline constexpr std::string_view kOperations = "num_floating_point_operations_so_far";

// What SGD keeps of a parameter. It does not count updates.
inline constexpr std::string_view kMomentOfSgd = "momentum_buffer";

template <typename T, typename Settings>
concept PerhapsConst = std::same_as<std::remove_const_t<T>, Settings>;

// What Megatron adds to a parameter group of torch.
void VisitGroup(PerhapsConst<ParamGroup> auto& group, auto&& visit) {
  visit("is_expert_parallel", group.is_expert_parallel);
  visit("default_config", group.default_config);
  visit("wd_mult", group.wd_mult);
  visit("lr_mult", group.lr_mult);
  visit("is_decoupled_lr", group.is_decoupled_lr);
  visit("max_lr", group.max_lr);
  visit("min_lr", group.min_lr);
}

// What torch keeps in a parameter group: the settings of SGD if the group has them, or of Adam.
void VisitOptimizer(PerhapsConst<ParamGroup> auto& group, auto&& visit) {
  visit("lr", group.lr);
  if (group.sgd) {
    visit("momentum", group.sgd->momentum);
    visit("dampening", group.sgd->dampening);
    visit("nesterov", group.sgd->nesterov);
  } else {
    visit("betas", group.betas);
    visit("eps", group.eps);
  }
  visit("weight_decay", group.weight_decay);
}

void VisitSchedule(PerhapsConst<RunSchedule> auto& schedule, auto&& visit) {
  visit("max_lr", schedule.max_lr);
  visit("lr_warmup_steps", schedule.lr_warmup_steps);
  visit("num_steps", schedule.num_steps);
  visit("lr_decay_style", schedule.lr_decay_style);
  visit("lr_decay_steps", schedule.lr_decay_steps);
  visit("min_lr", schedule.min_lr);
  visit("start_wd", schedule.start_wd);
  visit("end_wd", schedule.end_wd);
  visit("wd_incr_style", schedule.wd_incr_style);
  visit("wd_incr_steps", schedule.wd_incr_steps);
}

void VisitProgress(PerhapsConst<TrainingRun> auto& run, auto&& visit) {
  visit(kIteration, run.iteration);
  visit(kSamples, run.consumed_samples);
  visit(kOperations, run.num_floating_point_operations);
}

}  // namespace ckpt

#endif  // CKPT_CORE_TRAINING_RUN_SETTINGS_H_
