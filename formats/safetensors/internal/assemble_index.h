// From the headers of all files to one index: pieces of the same tensor are joined.
#ifndef CKPT_FORMATS_SAFETENSORS_INTERNAL_ASSEMBLE_INDEX_H_
#define CKPT_FORMATS_SAFETENSORS_INTERNAL_ASSEMBLE_INDEX_H_

#include <optional>
#include <span>
#include <string>

#include "core/base/result.h"
#include "core/checkpoint/index.h"
#include "formats/safetensors/header.h"
#include "formats/safetensors/internal/repository.h"
#include "formats/safetensors/internal/sharding_info.h"

namespace ckpt::safetensors {

struct LoadedShard {
  std::string name;  // relative to the directory
  Header header;
  std::optional<ShardingInfo> info;  // nothing: the file holds whole tensors
};

// Files get their position in `shards` as id. What concerns single tensors goes to the index's
// problems, under the kinds that SafetensorsSource::Open lists.
//
// Errors: kBadMetadata (cannot happen for headers that ParseHeader accepted).
Result<CheckpointIndex> AssembleIndex(std::span<const LoadedShard> shards,
                                      const RepositoryFiles& files);

}  // namespace ckpt::safetensors

#endif  // CKPT_FORMATS_SAFETENSORS_INTERNAL_ASSEMBLE_INDEX_H_
