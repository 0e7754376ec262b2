// Copies a file that goes with a checkpoint as it is: a configuration, a tokenizer.
#ifndef CKPT_CORE_EXEC_INTERNAL_COPY_SIDE_FILE_H_
#define CKPT_CORE_EXEC_INTERNAL_COPY_SIDE_FILE_H_

#include "core/base/result.h"
#include "core/checkpoint/write_plan.h"
#include "core/io/storage.h"
#include "core/manifest/manifest.h"

namespace ckpt {

// Replaces what an interrupted run left of it in `directory`. The copy is durable. Returns its line
// of the manifest.
Result<ManifestFile> CopySideFile(Storage& storage, const WriteCopy& copy, const Path& directory);

}  // namespace ckpt

#endif  // CKPT_CORE_EXEC_INTERNAL_COPY_SIDE_FILE_H_
