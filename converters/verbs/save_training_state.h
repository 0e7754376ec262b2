// Planning the checkpoint of a training run: the state that its ranks hold, as Megatron-FSDP stores
// it.
#ifndef CKPT_CONVERTERS_VERBS_SAVE_TRAINING_STATE_H_
#define CKPT_CONVERTERS_VERBS_SAVE_TRAINING_STATE_H_

#include <memory>
#include <string>
#include <vector>

#include "core/base/result.h"
#include "core/checkpoint/source.h"
#include "core/checkpoint/write_plan.h"
#include "core/layout/resolve.h"
#include "core/layout/value.h"
#include "core/plan/conversion_plan.h"
#include "formats/fsdp_dtensor/run_state.h"

namespace ckpt {

// The state in memory, tensors under the trainer's names ("decoder.layers.0.mlp.linear_fc1.weight") behind a prefix that
// says what they are.
struct RunningState {
  std::shared_ptr<const CheckpointSource> source;
  std::string weights;               // prefix of the weights
  std::vector<std::string> moments;  // of what the optimizer keeps, in the order of `moment_names`
  std::vector<std::string> moment_names;  // "exp_avg", …
  std::string run;                        // of fsdp_dtensor::RunTensors
};

struct TrainingSave {
  ConversionPlan plan;
  std::vector<int>
      writers;  // parallel to plan.write.files: the file of the source that each is made from
};

// A checkpoint directory (no root around it) with the whole of `run`. Every part of a tensor goes to the file of the writer
// whose source file holds it; objects and side files go to writer 0. A pure function: every rank plans the same.
//
// `run.group_of` is filled in: weights of two dims or more that are no bias go to the first group, others to the last, as
// Megatron groups them.
//
// `choices` are those of the format: "transformer_impl", "expert_names".
//
// Errors: kUnsupported (a family without tables, or rows of the target that come from several source files), kMissing,
//         kShapeMismatch (the state is not that of the model that run.args describe), those of PlanDcp and CheckPlan.
Result<TrainingSave> PlanTrainingSave(const RunningState& state, fsdp_dtensor::RunState run,
                                      const layout::Choices& choices,
                                      const std::vector<WriteCopy>& side_files);

}  // namespace ckpt

#endif  // CKPT_CONVERTERS_VERBS_SAVE_TRAINING_STATE_H_
