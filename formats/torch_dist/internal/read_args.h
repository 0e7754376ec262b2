// The arguments of the run that wrote a torch_dist checkpoint.
#ifndef CKPT_FORMATS_TORCH_DIST_INTERNAL_READ_ARGS_H_
#define CKPT_FORMATS_TORCH_DIST_INTERNAL_READ_ARGS_H_

#include "core/base/result.h"
#include "core/checkpoint/source.h"
#include "core/layout/value.h"

namespace ckpt::torch_dist {

// Those in the common state, or what Megatron-Bridge keeps in their place; nothing if there are
// none. Errors: those of ReadStoredMembers and ReadBridgeArgs.
Result<layout::Configuration> ReadArgs(const CheckpointSource& source);

}  // namespace ckpt::torch_dist

#endif  // CKPT_FORMATS_TORCH_DIST_INTERNAL_READ_ARGS_H_
