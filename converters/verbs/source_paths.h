// Where the bytes of a checkpoint lie, so that nothing is written over them while it is read.
#ifndef CKPT_CONVERTERS_VERBS_SOURCE_PATHS_H_
#define CKPT_CONVERTERS_VERBS_SOURCE_PATHS_H_

#include <vector>

#include "core/base/result.h"
#include "core/io/path.h"
#include "core/io/storage.h"
#include "formats/registry/registry.h"

namespace ckpt {

// The canonical paths of `given`, as the user named the checkpoint, of the checkpoint that was
// found there, and of each of its files, which may lie elsewhere: beside it, or behind a link.
// Errors: kIo.
Result<std::vector<Path>> SourcePaths(Storage& storage, const Path& given,
                                      const OpenedCheckpoint& checkpoint);

}  // namespace ckpt

#endif  // CKPT_CONVERTERS_VERBS_SOURCE_PATHS_H_
