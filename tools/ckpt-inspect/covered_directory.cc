#include "tools/ckpt-inspect/covered_directory.h"

#include <string>
#include <utility>
#include <vector>

#include "core/manifest/manifest.h"
#include "formats/registry/locate.h"

namespace ckpt::inspect {
namespace {

// Whether the directory has a manifest, or files that belong to one.
Result<bool> HasManifest(Storage& storage, const Path& directory) {
  for (const std::string& name :
       {std::string(kManifestName), std::string(kManifestCopyName), ParityName(0)}) {
    CKPT_ASSIGN_OR_RETURN(const FileStat stat, storage.Stat(directory / name));
    if (stat.type != FileType::kMissing) return true;
  }
  return false;
}

Result<std::vector<Path>> CoveredChildren(Storage& storage, const Path& directory) {
  std::vector<Path> covered;
  CKPT_ASSIGN_OR_RETURN(const std::vector<DirectoryEntry> entries, storage.List(directory));
  for (const DirectoryEntry& entry : entries) {
    if (entry.type != FileType::kDirectory) continue;
    CKPT_ASSIGN_OR_RETURN(const bool is_covered, HasManifest(storage, directory / entry.name));
    if (is_covered) covered.push_back(directory / entry.name);
  }
  return covered;
}

}  // namespace

Result<Path> FindCoveredDirectory(Storage& storage, const Path& path,
                                  std::optional<std::int64_t> iteration) {
  CKPT_ASSIGN_OR_RETURN(const FileStat stat, storage.Stat(path));
  const bool is_directory = stat.type == FileType::kDirectory;
  if (is_directory && !iteration) {
    CKPT_ASSIGN_OR_RETURN(const bool is_covered, HasManifest(storage, path));
    if (is_covered) return path;
  }
  const Result<CheckpointLocation> located = LocateCheckpoint(storage, path, iteration);
  if (located.ok() && located->is_directory) {
    CKPT_ASSIGN_OR_RETURN(const bool is_covered, HasManifest(storage, located->path));
    if (is_covered) return located->path;
  }
  if (is_directory && !iteration) {
    CKPT_ASSIGN_OR_RETURN(std::vector<Path> covered, CoveredChildren(storage, path));
    if (covered.size() == 1) return std::move(covered.front());
  }
  CKPT_RETURN_IF_ERROR(located.status());
  if (!located->is_directory) {
    return Error(ErrorKind::kUsage, "one file of a checkpoint cannot be repaired alone")
        .File(located->path.string())
        .Hint("name the directory that it lies in");
  }
  return Error(ErrorKind::kNotFound, "the checkpoint has no ckptkit.json")
      .File(located->path.string())
      .Hint(
          "only checkpoints that these tools wrote carry the checksums that prove and repair their "
          "bytes");
}

}  // namespace ckpt::inspect
