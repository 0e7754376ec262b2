// Finds and reads the manifest of a checkpoint of ours.
#ifndef CKPT_CORE_MANIFEST_READ_MANIFEST_H_
#define CKPT_CORE_MANIFEST_READ_MANIFEST_H_

#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "core/base/result.h"
#include "core/io/storage.h"
#include "core/manifest/manifest.h"

namespace ckpt {

// The hint where the manifest is intact in one of its two places alone.
inline constexpr std::string_view kRepairManifest =
    "a repaired copy of the checkpoint contains it again";

// The directory that holds the manifest: `checkpoint` itself, or its parent if it is a file.
// Errors: kIo.
Result<Path> ManifestDirectory(Storage& storage, const Path& checkpoint);

// Null if there is no manifest: then another program wrote the checkpoint. If the checkpoint is a
// single file, the manifest is reduced to this file; null if it does not name the file. The copy of
// the manifest is not used here: reading continues only if nothing is lost.
// Errors: those of ParseManifest and of reading; kMissingFile (other files that belong to a
// manifest exist, but the manifest does not); kResource (larger than kMaxManifestBytes).
Result<std::shared_ptr<const Manifest>> ReadManifest(Storage& storage, const Path& checkpoint);

// An intact manifest, and the state of the other place where it should be stored.
struct StoredManifest {
  std::string text;
  Manifest manifest;
  // The file, kManifestName or kManifestCopyName, that does not hold the text. Nothing if all hold
  // it.
  std::optional<Problem> lost = {};
};

// The manifest of `directory`, read from its copy if the manifest itself is lost. Nothing if the
// directory has neither a manifest nor files that belong to one.
// Errors: those of ReadManifest, if the copy cannot be used either.
Result<std::optional<StoredManifest>> FindManifest(Storage& storage, const Path& directory);

}  // namespace ckpt

#endif  // CKPT_CORE_MANIFEST_READ_MANIFEST_H_
