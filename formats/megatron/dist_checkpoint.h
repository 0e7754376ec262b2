// What Megatron-Core's dist_checkpointing writes with every backend: a folder with metadata.json
// and the common state.
#ifndef CKPT_FORMATS_MEGATRON_DIST_CHECKPOINT_H_
#define CKPT_FORMATS_MEGATRON_DIST_CHECKPOINT_H_

#include <optional>
#include <string>
#include <string_view>

#include "core/base/result.h"
#include "core/io/storage.h"
#include "formats/place.h"

namespace ckpt::megatron {

// Written last.
inline constexpr std::string_view kMetadataFile = "metadata.json";
// The common state: a file up to Core 0.18, and what it is called here.
inline constexpr std::string_view kCommonFile = "common.pt";
inline constexpr std::string_view kCommonKey = "common_state";

// `sharded_backend` of metadata.json; nothing if the file belongs to another program, or is not
// there. Errors: kUnsupported (no backend or version of it that Megatron-Core ever had),
// kBadMetadata, kIo.
Result<std::optional<std::string>> ShardedBackend(const Place& place);

// Errors: kUnsupported (another backend, or another version of it), kBadMetadata, kNotFound,
// kResource, kIo.
Status CheckShardedBackend(Storage& storage, const Path& directory, std::string_view expected);

// Whether metadata.json says that the common state is a file (`common_backend`): Core up to 0.18
// always writes both. Errors: kBadMetadata, kNotFound, kResource, kIo.
Result<bool> SaysCommonFile(Storage& storage, const Path& directory);

// The error (kMissingFile) of a common state whose file was written and is gone. To a reader it is
// an object that cannot be read.
[[nodiscard]] Status CommonFileLost(const Path& directory);

}  // namespace ckpt::megatron

#endif  // CKPT_FORMATS_MEGATRON_DIST_CHECKPOINT_H_
