#include "formats/dcp/file_cache.h"

namespace ckpt::dcp {

Result<std::shared_ptr<const ReadableFile>> FileCache::Open(const std::string& name) {
  {
    const MutexLock lock(mutex_);
    if (const auto found = by_name_.find(name); found != by_name_.end()) {
      entries_.splice(entries_.begin(), entries_, found->second);
      return entries_.front().file;
    }
  }
  CKPT_ASSIGN_OR_RETURN(const Path path, JoinInside(directory_, name));
  Result<std::shared_ptr<const ReadableFile>> file = storage_->Open(path);
  if (!file.ok() && file.status().kind() == ErrorKind::kNotFound) {
    return Error(ErrorKind::kMissingFile, "a data file is not there")
        .File(path.string())
        .Hint("copy all files of the checkpoint, or take an earlier one");
  }
  if (!file.ok()) return file;

  // If two threads opened the same file, the one that came first is kept.
  const MutexLock lock(mutex_);
  if (const auto found = by_name_.find(name); found != by_name_.end()) return found->second->file;
  entries_.push_front({name, *file});
  by_name_.emplace(name, entries_.begin());
  if (entries_.size() > max_open_) {
    by_name_.erase(entries_.back().name);
    entries_.pop_back();
  }
  return file;
}

}  // namespace ckpt::dcp
