// The state that all ranks have in common, as Megatron-LM stores it: one dictionary.
#ifndef CKPT_FORMATS_TORCH_DIST_INTERNAL_COMMON_STATE_H_
#define CKPT_FORMATS_TORCH_DIST_INTERNAL_COMMON_STATE_H_

#include "core/training/training_run.h"
#include "formats/megatron/plain_pickle.h"
#include "formats/pickle/writer.h"

namespace ckpt::torch_dist {

// Of weights that come from no run: what Megatron-LM asks for before it loads them.
void WriteModelState(const megatron::NamedValues& args, pickle::PickleWriter& pickle);

// Of a run, whose optimizer's tensors are stored in the form fully_reshardable.
void WriteRunState(const TrainingRun& run, pickle::PickleWriter& pickle);

}  // namespace ckpt::torch_dist

#endif  // CKPT_FORMATS_TORCH_DIST_INTERNAL_COMMON_STATE_H_
