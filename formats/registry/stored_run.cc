#include "formats/registry/stored_run.h"

#include "core/training/run_format.h"
#include "formats/fsdp_dtensor/format.h"
#include "formats/registry/registry.h"

namespace ckpt {

Result<layout::Configuration> ReadRunArgs(const CheckpointSource& source) {
  for (const Format* format : Formats()) {
    if (format->read_args == nullptr) continue;
    CKPT_ASSIGN_OR_RETURN(layout::Configuration args, format->read_args(source));
    if (!args.empty()) return args;
  }
  return layout::Configuration();
}

Result<StoredRun> ReadStoredRun(const CheckpointSource& source) {
  return fsdp_dtensor::kFormat.run->read(source);
}

}  // namespace ckpt
