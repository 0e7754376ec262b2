// The parameter groups of an optimizer, as torch's get_state_dict names them.
#ifndef CKPT_FORMATS_FSDP2_INTERNAL_READ_GROUPS_H_
#define CKPT_FORMATS_FSDP2_INTERNAL_READ_GROUPS_H_

#include <cstddef>
#include <string>
#include <utility>
#include <vector>

#include "core/base/result.h"
#include "core/checkpoint/source.h"
#include "core/training/training_run.h"

namespace ckpt::fsdp2 {

struct Groups {
  std::vector<ParamGroup> groups;
  std::vector<std::pair<std::string, std::size_t>> group_of;
};

// Those of the optimizer with this prefix, by number or flattened, with what Megatron adds where it
// is stored beside them. Notes in `into` what they say. Errors: kMissing (there are none),
// kUnsupported and kBadMetadata (megatron::ReadTorchGroup; a parameter is in two groups).
Result<Groups> ReadGroups(const CheckpointSource& source, const std::string& optimizer,
                          StoredRun& into);

}  // namespace ckpt::fsdp2

#endif  // CKPT_FORMATS_FSDP2_INTERNAL_READ_GROUPS_H_
