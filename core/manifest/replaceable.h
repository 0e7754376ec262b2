// Which directories a new checkpoint may take the place of.
#ifndef CKPT_CORE_MANIFEST_REPLACEABLE_H_
#define CKPT_CORE_MANIFEST_REPLACEABLE_H_

#include "core/base/status.h"
#include "core/io/storage.h"
#include "core/manifest/run_root.h"

namespace ckpt {

// OK for a directory without files, and for a checkpoint that these tools made: a sidecar in the directory
// or in its `root.weights_directory` names every file there is, and nothing else would be lost. Of a sidecar
// that is damaged only the place is known: all beside it is taken for its own, save what is of a run.
//
// Errors: kAlreadyExists (names files that would be lost), kIo.
Status CheckReplaceable(Storage& storage, const Path& directory, const RunRoot& root);

}  // namespace ckpt

#endif  // CKPT_CORE_MANIFEST_REPLACEABLE_H_
