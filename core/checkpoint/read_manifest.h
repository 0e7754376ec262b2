// The manifest that lies in a checkpoint of ours.
#ifndef CKPT_CORE_CHECKPOINT_READ_MANIFEST_H_
#define CKPT_CORE_CHECKPOINT_READ_MANIFEST_H_

#include <memory>

#include "core/base/result.h"
#include "core/checkpoint/manifest.h"
#include "core/io/storage.h"

namespace ckpt {

// Where the manifest of a checkpoint lies: `checkpoint` itself; beside it, if it is a file. Errors: kIo.
Result<Path> ManifestDirectory(Storage& storage, const Path& checkpoint);

// Null if there is none: then another program wrote the checkpoint. Of a checkpoint that is one file, the manifest says
// only what concerns this file; null if it does not name it.
// Errors: those of ParseManifest, of reading; kResource (larger than kMaxManifestBytes).
Result<std::shared_ptr<const Manifest>> ReadManifest(Storage& storage, const Path& checkpoint);

}  // namespace ckpt

#endif  // CKPT_CORE_CHECKPOINT_READ_MANIFEST_H_
