#include "formats/torch_dist/internal/read_args.h"

#include "core/training/stored_values.h"
#include "formats/torch_dist/internal/source.h"

namespace ckpt::torch_dist {

Result<layout::Configuration> ReadArgs(const CheckpointSource& source) {
  return ReadStoredMembers(source, kCommonKey, "args.$object.state.");
}

}  // namespace ckpt::torch_dist
