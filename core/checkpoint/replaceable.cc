#include "core/checkpoint/replaceable.h"

#include <string>
#include <vector>

#include "core/checkpoint/manifest.h"

namespace ckpt {
namespace {

constexpr std::size_t kMaxNamed = 5;

Result<bool> HasSidecar(Storage& storage, const Path& directory) {
  const std::string name(kManifestName);
  for (const Path& path : {directory / name, directory / "release" / name}) {
    CKPT_ASSIGN_OR_RETURN(const FileStat stat, storage.Stat(path));
    if (stat.type == FileType::kRegular) return true;
  }
  return false;
}

std::string ListNames(const std::vector<std::string>& names) {
  std::string list;
  for (std::size_t i = 0; i < names.size() && i < kMaxNamed; ++i) {
    list += (i == 0 ? "" : ", ") + names[i];
  }
  return names.size() > kMaxNamed ? list + ", ..." : list;
}

}  // namespace

Status CheckReplaceable(Storage& storage, const Path& directory) {
  CKPT_ASSIGN_OR_RETURN(const bool is_ours, HasSidecar(storage, directory));
  CKPT_ASSIGN_OR_RETURN(const std::vector<DirectoryEntry> entries, storage.List(directory));
  std::vector<std::string> foreign;
  for (const DirectoryEntry& entry : entries) {
    if (!is_ours || entry.name.starts_with("iter_")) foreign.push_back(entry.name);
  }
  if (foreign.empty()) return OkStatus();
  return Error(ErrorKind::kAlreadyExists, "the target holds what these tools did not write")
      .File(directory.string())
      .Actual(ListNames(foreign))
      .Hint("remove it yourself if it is not needed");
}

}  // namespace ckpt
