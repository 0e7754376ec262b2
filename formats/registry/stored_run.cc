#include "formats/registry/stored_run.h"

#include "formats/fsdp_dtensor/read_run.h"
#include "formats/torch_dist/read_args.h"

namespace ckpt {

Result<layout::Configuration> ReadRunArgs(const CheckpointSource& source) {
  CKPT_ASSIGN_OR_RETURN(layout::Configuration args, fsdp_dtensor::ReadArgs(source));
  return args.empty() ? torch_dist::ReadArgs(source) : args;
}

Result<StoredRun> ReadStoredRun(const CheckpointSource& source) {
  return fsdp_dtensor::ReadRun(source);
}

}  // namespace ckpt
