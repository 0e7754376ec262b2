// From the path a person gives to the directory or file that holds one checkpoint.
#ifndef CKPT_FORMATS_REGISTRY_LOCATE_H_
#define CKPT_FORMATS_REGISTRY_LOCATE_H_

#include <cstdint>
#include <optional>

#include "core/base/result.h"
#include "core/io/storage.h"

namespace ckpt {

struct CheckpointLocation {
  Path path;  // a directory, or one file
  bool is_directory = false;
  std::optional<std::int64_t> iteration = std::nullopt;  // where the name of the directory says it
  bool is_release = false;  // Megatron's `release`: weights outside any run
};

// Resolves `path`, which may be
//  - a Megatron root: `latest_checkpointed_iteration.txt` names iter_%07d or release, unless
//    `iteration` is given;
//  - a folder of step-N: the newest complete one, or the one that `iteration` names;
//  - the folder of a model in the Hugging Face hub's cache: the snapshot that `refs/main` names, or
//    the only one;
//  - a checkpoint's own directory, or a file that stands for it (.metadata, an index.json);
//  - any other file.
//
// Errors: kNotFound, kIo, kBadMetadata (the tracker, refs/main), kIncomplete (only interrupted
// saves), kUsage (`iteration` where there is nothing to choose from, several snapshots and no
// refs/main).
Result<CheckpointLocation> LocateCheckpoint(Storage& storage, const Path& path,
                                            std::optional<std::int64_t> iteration);

}  // namespace ckpt

#endif  // CKPT_FORMATS_REGISTRY_LOCATE_H_
