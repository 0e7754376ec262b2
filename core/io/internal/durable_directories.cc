#include "core/io/internal/durable_directories.h"

#include <vector>

namespace ckpt {

Status MakeDurableDirectories(Storage& storage, const Path& directory) {
  if (directory.empty() || directory == directory.root_path()) return OkStatus();
  CKPT_ASSIGN_OR_RETURN(const FileStat stat, storage.Stat(directory));
  if (stat.type == FileType::kDirectory) {
    CKPT_ASSIGN_OR_RETURN(const std::vector<DirectoryEntry> entries, storage.List(directory));
    if (!entries.empty()) return OkStatus();
    // An earlier run may have created it and been killed before this sync.
  } else {
    CKPT_RETURN_IF_ERROR(MakeDurableDirectories(storage, directory.parent_path()));
    CKPT_RETURN_IF_ERROR(storage.MakeDirectories(directory));
  }
  return storage.SyncDirectory(directory.parent_path());
}

}  // namespace ckpt
