// The manifest that lies in a checkpoint of ours.
#ifndef CKPT_CORE_CHECKPOINT_READ_MANIFEST_H_
#define CKPT_CORE_CHECKPOINT_READ_MANIFEST_H_

#include <memory>

#include "core/base/result.h"
#include "core/checkpoint/manifest.h"
#include "core/io/storage.h"

namespace ckpt {

// Null if `directory` has none: then another program wrote the checkpoint.
// Errors: those of ParseManifest, of reading; kResource (larger than kMaxManifestBytes).
Result<std::shared_ptr<const Manifest>> ReadManifest(Storage& storage, const Path& directory);

}  // namespace ckpt

#endif  // CKPT_CORE_CHECKPOINT_READ_MANIFEST_H_
