// From the headers of all files to one index: pieces of the same tensor are joined.
#ifndef CKPT_FORMATS_SAFETENSORS_INTERNAL_ASSEMBLE_INDEX_H_
#define CKPT_FORMATS_SAFETENSORS_INTERNAL_ASSEMBLE_INDEX_H_

#include <optional>
#include <span>
#include <string>
#include <vector>

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

// What a header says besides its tensors, and not to readers: which library the tensors are for
// ("format": "pt") and torch's DCP_* are none.
struct Note {
  // "__metadata__.NAME"; "FILE.__metadata__.NAME" where files say different things.
  std::string key;
  std::string text;
  FileId file = 0;
};
[[nodiscard]] std::vector<Note> NotesOf(std::span<const LoadedShard> shards);

// Notes are objects. Files get their position in `shards` as id. What concerns single tensors goes
// to the index's problems, under the kinds that SafetensorsSource::Open lists.
//
// Errors: kBadMetadata (cannot happen for headers that ParseHeader accepted).
Result<CheckpointIndex> AssembleIndex(std::span<const LoadedShard> shards,
                                      const RepositoryFiles& files);

}  // namespace ckpt::safetensors

#endif  // CKPT_FORMATS_SAFETENSORS_INTERNAL_ASSEMBLE_INDEX_H_
