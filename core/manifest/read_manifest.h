// The manifest that lies in a checkpoint of ours.
#ifndef CKPT_CORE_MANIFEST_READ_MANIFEST_H_
#define CKPT_CORE_MANIFEST_READ_MANIFEST_H_

#include <memory>
#include <optional>
#include <string>

#include "core/base/result.h"
#include "core/io/storage.h"
#include "core/manifest/manifest.h"

namespace ckpt {

// Where the manifest of a checkpoint lies: `checkpoint` itself; beside it, if it is a file. Errors: kIo.
Result<Path> ManifestDirectory(Storage& storage, const Path& checkpoint);

// Null if there is none: then another program wrote the checkpoint. Of a checkpoint that is one file, the manifest says
// only what concerns this file; null if it does not name it. A copy does not serve in its place: reading goes on only
// where nothing is lost.
// Errors: those of ParseManifest, of reading; kMissingFile (what is left beside a manifest is there, and it is not);
//         kResource (larger than kMaxManifestBytes).
Result<std::shared_ptr<const Manifest>> ReadManifest(Storage& storage, const Path& checkpoint);

// A manifest that is whole, and what became of the other place where it should lie.
struct StoredManifest {
  std::string text;
  Manifest manifest;
  // The file, kManifestName or kManifestCopyName, that does not hold the text. Nothing: all of them do.
  std::optional<Problem> lost = {};
};

// The manifest of `directory`, from its copy where it is lost itself. Nothing if the directory has neither a manifest nor
// what is left beside one.
// Errors: those of ReadManifest, if no copy serves.
Result<std::optional<StoredManifest>> FindManifest(Storage& storage, const Path& directory);

}  // namespace ckpt

#endif  // CKPT_CORE_MANIFEST_READ_MANIFEST_H_
