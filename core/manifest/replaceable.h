// Decides which directories a new checkpoint may replace.
#ifndef CKPT_CORE_MANIFEST_REPLACEABLE_H_
#define CKPT_CORE_MANIFEST_REPLACEABLE_H_

#include "core/base/status.h"
#include "core/io/storage.h"
#include "core/manifest/run_root.h"

namespace ckpt {

// OK for a directory without files, and for a checkpoint that these tools made: a manifest in the
// directory or in its `root.weights_directory` names every file there, so that nothing else would
// be lost. If the manifest is damaged, everything in its directory counts as its own, except files
// of a run.
//
// Errors: kAlreadyExists (names files that would be lost), kIo.
Status CheckReplaceable(Storage& storage, const Path& directory, const RunRoot& root);

}  // namespace ckpt

#endif  // CKPT_CORE_MANIFEST_REPLACEABLE_H_
