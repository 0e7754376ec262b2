// The state that all ranks have in common, as Megatron-LM stores it: one dictionary.
#ifndef CKPT_FORMATS_TORCH_DIST_INTERNAL_COMMON_STATE_H_
#define CKPT_FORMATS_TORCH_DIST_INTERNAL_COMMON_STATE_H_

#include <string_view>

#include "core/training/training_run.h"
#include "formats/megatron/plain_pickle.h"
#include "formats/pickle/writer.h"

namespace ckpt::torch_dist {

// Of weights that come from no run: what Megatron-LM asks for before it loads them.
void WriteModelState(const megatron::NamedValues& args, pickle::PickleWriter& pickle);

// Who updates experts: the optimizer of all others, or one of their own, as Megatron has if expert
// parallelism is larger than 1. It loads none as the other.
enum class ExpertOptimizer { kJoint, kSeparate };

// Of a run, whose optimizer's tensors are stored in the form that is named. REQUIRES: for separate
// optimizers, `run.group_of` has every trained parameter.
void WriteRunState(const TrainingRun& run, ExpertOptimizer experts, std::string_view form,
                   pickle::PickleWriter& pickle);

}  // namespace ckpt::torch_dist

#endif  // CKPT_FORMATS_TORCH_DIST_INTERNAL_COMMON_STATE_H_
