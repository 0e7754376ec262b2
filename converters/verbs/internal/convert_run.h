// Planning the conversion of a whole training run.
#ifndef CKPT_CONVERTERS_VERBS_INTERNAL_CONVERT_RUN_H_
#define CKPT_CONVERTERS_VERBS_INTERNAL_CONVERT_RUN_H_

#include <map>
#include <string>
#include <vector>

#include "converters/verbs/model_source.h"
#include "converters/verbs/side_files.h"
#include "converters/verbs/training_state.h"
#include "core/base/result.h"
#include "core/training/run_format.h"
#include "formats/format.h"
#include "formats/weights_request.h"

namespace ckpt {

// Adds to the weights in `view`, which are those of the target, what the optimizer keeps of them.
// `forms` are the target's.
//
// REQUIRES: `target.run` is not null. Errors: those of ViewModel.
Status AddOptimizer(const TrainingState& state, const Format& target, const ChosenForms& forms,
                    ModelView& view);

// The run as the target stores it, after AddOptimizer: the checkpoint is not cut, and parameters
// whose groups the source does not name are in those that Megatron puts them in. The arguments say
// how many tokens a vocabulary without padding has, and under which keys layers are. Those that are
// not plain values are left out and added to `left_out`.
//
// Errors: kUnsupported (more groups than can be told apart by what decays, a tensor of the target
// that is made of weights of several groups, a group that the target's readers would take for
// another one), kMissing (a trained weight is in no group), those of
// MegatronArgs (of a run whose own arguments say nothing of its model).
Result<TrainingRun> RunForTarget(const TrainingState& state, const Format& target,
                                 const ModelView& view, std::vector<LeftOutEntry>& left_out);

// Says in the run's arguments whose layers the model has, Transformer Engine's or local ones, and
// whether experts are grouped, if these are among the choices.
void NameModules(const std::map<std::string, std::string>& chosen, TrainingRun& run);

// The arguments of `run` for a checkpoint of its weights alone: they tell of the model, also what
// no config.json could say. Of `of_target`, made from the configuration, those count that depend on
// how the target stores the model, and those that the run does not have. Arguments that are not
// plain values are added to `left_out`.
[[nodiscard]] NamedValues ArgsForWeights(const layout::Configuration& run, NamedValues of_target,
                                         std::vector<LeftOutEntry>& left_out);

// Objects that are no part of the run and go along to a target of the same form
// (RunFormat::carries_objects): `left_out` has them no longer. Errors: those of reading an object.
Result<std::vector<PickledEntry>> CarryObjectsOfRun(const TrainingState& state,
                                                    const RunFormat& target,
                                                    std::vector<LeftOutEntry>& left_out);

// Without what the conversion of `state` carries over.
[[nodiscard]] std::vector<LeftOutEntry> LeftOutOfRun(const TrainingState& state,
                                                     std::vector<LeftOutEntry> left_out);

// Every file of the target, a root of runs around the checkpoint where the format has one. Errors:
// those of RunFormat::plan.
Result<PlannedCheckpoint> PlanRunInRoot(const Format& target, RunRequest request);

}  // namespace ckpt

#endif  // CKPT_CONVERTERS_VERBS_INTERNAL_CONVERT_RUN_H_
