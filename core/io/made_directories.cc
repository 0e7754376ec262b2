#include "core/io/made_directories.h"

#include <utility>

#include "core/io/internal/durable_directories.h"

namespace ckpt {

Result<MadeDirectories> MadeDirectories::Make(Storage& storage, const Path& directory) {
  MadeDirectories made;
  made.storage_ = &storage;
  for (Path path = directory; !path.empty(); path = path.parent_path()) {
    CKPT_ASSIGN_OR_RETURN(const FileStat stat, storage.Stat(path));
    if (stat.type != FileType::kMissing) break;
    made.made_.push_back(path);
  }
  CKPT_RETURN_IF_ERROR(MakeDurableDirectories(storage, directory));
  return made;
}

MadeDirectories::MadeDirectories(MadeDirectories&& other) noexcept
    : storage_(other.storage_), made_(std::exchange(other.made_, {})) {}

MadeDirectories& MadeDirectories::operator=(MadeDirectories&& other) noexcept {
  std::swap(storage_, other.storage_);
  std::swap(made_, other.made_);
  return *this;
}

MadeDirectories::~MadeDirectories() {
  for (const Path& path : made_) {
    const Status removed = storage_->RemoveEmptyDirectory(path);
    // One that is not empty stays, and so do its parents. One that does not exist was not made.
    if (!removed.ok() && removed.kind() != ErrorKind::kNotFound) return;
  }
}

}  // namespace ckpt
