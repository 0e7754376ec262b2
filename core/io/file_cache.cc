#include "core/io/file_cache.h"

namespace ckpt {

Result<std::shared_ptr<const ReadableFile>> FileCache::Open(const std::string& name) {
  {
    const MutexLock lock(mutex_);
    if (const auto found = by_name_.find(name); found != by_name_.end()) {
      entries_.splice(entries_.begin(), entries_, found->second);
      return entries_.front().file;
    }
  }
  Result<std::shared_ptr<const ReadableFile>> file = open_(name);
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

}  // namespace ckpt
