// Plans what Megatron-Core's dist_checkpointing loads as `torch_dist`.
#ifndef CKPT_FORMATS_TORCH_DIST_INTERNAL_WRITER_H_
#define CKPT_FORMATS_TORCH_DIST_INTERNAL_WRITER_H_

#include <array>
#include <string>
#include <string_view>
#include <vector>

#include "core/base/result.h"
#include "core/checkpoint/chosen_forms.h"
#include "core/checkpoint/write_plan.h"
#include "core/training/run_format.h"
#include "formats/weights_request.h"

namespace ckpt::torch_dist {

// Who reads it: with kCompat every Megatron-Core since 0.6, with kSince019 those that look for the
// common state among the objects first.
inline constexpr std::string_view kGenerationOption = "torch-dist-generation";
inline constexpr std::string_view kCompat = "compat";
inline constexpr std::string_view kSince019 = "0.19";
inline constexpr std::array kGenerations = {kCompat, kSince019};

// Whether a run's experts have an optimizer of their own (common_state.h).
inline constexpr std::string_view kExpertOption = "expert-optimizer";
inline constexpr std::string_view kSeparateExperts = "separate";
inline constexpr std::string_view kJointExperts = "joint";
inline constexpr std::array<std::string_view, 2> kExpertForms = {kJointExperts, kSeparateExperts};

// How a run's optimizer is stored (Megatron's `distrib_optim_sharding_type`).
inline constexpr std::string_view kOptimizerOption = "optimizer-form";
inline constexpr std::string_view kFullyReshardable = "fully_reshardable";
inline constexpr std::string_view kModelSpace = "fully_sharded_model_space";
inline constexpr std::string_view kDpReshardable = "dp_reshardable";
inline constexpr std::array<std::string_view, 3> kOptimizerForms = {kFullyReshardable, kModelSpace,
                                                                    kDpReshardable};

// A root with a model's weights:
//
//   latest_checkpointed_iteration.txt   "release"
//   release/.metadata, __0_<n>.distcp   the tensors; every empty object as [None]
//   release/metadata.json               names the backend
//   release/common.pt                   (compat) args, checkpoint_version 3.0, iteration 0,
//                                       content_metadata; since 0.19 an object of `.metadata`
//   release/hf_assets/                  the side files
//
// Errors: those of dcp::PlanDcp, kResource (more objects than any model has).
Result<PlannedCheckpoint> PlanRelease(WeightsRequest request);

// Keys of a weight and of what the optimizer keeps for it.
[[nodiscard]] std::string WeightKey(std::string_view name);
[[nodiscard]] std::string MomentKey(std::string_view name, std::string_view moment);
[[nodiscard]] std::string MainWeightKey(std::string_view name, const ChosenForms& forms);

// A run for a container of another format: its tensors, those of the optimizer in the form that was
// chosen; `rng_state` of every pipeline and tensor rank, fresh from the run's seed; and the common
// state as readers of torch_dist show it. In the form dp_reshardable the entries are those of the
// ranks that the run had: `args` say their numbers, and buffers are theirs (`request.run.buffers`),
// or those that Megatron makes for them.
//
// Errors: for dp_reshardable those of PackBuffers, HaveExpertOptimizer and PredictBuffers; kUsage
// (several processes write the tensors).
Result<RunEntries> EntriesOfRun(RunRequest& request);

// Warns where Megatron asks for another optimizer than the forms give, if it goes on as the run
// was: one for the experts, or one that is not distributed.
[[nodiscard]] std::vector<Problem> WarnOfOptimizer(const TrainingRun& run,
                                                   const ChosenForms& forms);

// The directory of a run's checkpoint, without the root around it: the files above, with the same
// entries. Errors: those of PlanRelease and EntriesOfRun.
Result<WritePlan> PlanRun(RunRequest request);

}  // namespace ckpt::torch_dist

#endif  // CKPT_FORMATS_TORCH_DIST_INTERNAL_WRITER_H_
