#include "formats/torch_dist/internal/read_args.h"

#include "core/training/stored_values.h"
#include "formats/megatron/bridge_files.h"
#include "formats/torch_dist/internal/source.h"

namespace ckpt::torch_dist {

Result<layout::Configuration> ReadArgs(const CheckpointSource& source) {
  CKPT_ASSIGN_OR_RETURN(layout::Configuration args,
                        ReadStoredMembers(source, kCommonKey, "args.$object.state."));
  return args.empty() ? megatron::ReadBridgeArgs(source) : args;
}

}  // namespace ckpt::torch_dist
