#include "core/checkpoint/read_manifest.h"

#include <cstddef>
#include <optional>
#include <string>
#include <utility>

namespace ckpt {

Result<Path> ManifestDirectory(Storage& storage, const Path& checkpoint) {
  CKPT_ASSIGN_OR_RETURN(const FileStat stat, storage.Stat(checkpoint));
  if (stat.type != FileType::kRegular) return checkpoint;
  return checkpoint.has_parent_path() ? checkpoint.parent_path() : Path(".");
}

Result<std::shared_ptr<const Manifest>> ReadManifest(Storage& storage, const Path& checkpoint) {
  CKPT_ASSIGN_OR_RETURN(const Path directory, ManifestDirectory(storage, checkpoint));
  const Path path = directory / std::string(kManifestName);
  CKPT_ASSIGN_OR_RETURN(const FileStat stat, storage.Stat(path));
  if (stat.type == FileType::kMissing) return std::shared_ptr<const Manifest>();
  CKPT_ASSIGN_OR_RETURN(const std::string text, ReadSmallFile(storage, path, kMaxManifestBytes));
  CKPT_ASSIGN_OR_RETURN(Manifest manifest, ParseManifest(text, path.string()));
  if (directory == checkpoint) return std::make_shared<const Manifest>(std::move(manifest));
  const std::optional<std::size_t> file = manifest.FindFile(checkpoint.filename().string());
  if (!file) return std::shared_ptr<const Manifest>();
  Manifest own;
  own.tool = std::move(manifest.tool);
  own.files.push_back(std::move(manifest.files[*file]));
  return std::make_shared<const Manifest>(std::move(own));
}

}  // namespace ckpt
