#include "core/checkpoint/read_manifest.h"

#include <string>
#include <utility>

namespace ckpt {

Result<std::shared_ptr<const Manifest>> ReadManifest(Storage& storage, const Path& directory) {
  const Path path = directory / std::string(kManifestName);
  CKPT_ASSIGN_OR_RETURN(const FileStat stat, storage.Stat(path));
  if (stat.type == FileType::kMissing) return std::shared_ptr<const Manifest>();
  CKPT_ASSIGN_OR_RETURN(const std::string text, ReadSmallFile(storage, path, kMaxManifestBytes));
  CKPT_ASSIGN_OR_RETURN(Manifest manifest, ParseManifest(text, path.string()));
  return std::make_shared<const Manifest>(std::move(manifest));
}

}  // namespace ckpt
