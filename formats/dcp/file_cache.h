// Open files of one directory, as many as may be open at a time.
#ifndef CKPT_FORMATS_DCP_FILE_CACHE_H_
#define CKPT_FORMATS_DCP_FILE_CACHE_H_

#include <cstddef>
#include <list>
#include <memory>
#include <string>
#include <unordered_map>

#include "core/base/mutex.h"
#include "core/base/result.h"
#include "core/io/storage.h"

namespace ckpt::dcp {

// Thread-safety: thread-safe. A file that somebody still holds stays open after it left the cache.
class FileCache {
 public:
  FileCache(Storage& storage, Path directory, std::size_t max_open = 256)
      : storage_(&storage), directory_(std::move(directory)), max_open_(max_open) {}

  // `name` is relative and comes from a file.
  // Errors: kUnsafePath, kMissingFile, kIo.
  Result<std::shared_ptr<const ReadableFile>> Open(const std::string& name) CKPT_EXCLUDES(mutex_);

  [[nodiscard]] const Path& directory() const { return directory_; }

 private:
  struct Entry {
    std::string name;
    std::shared_ptr<const ReadableFile> file;
  };

  Storage* storage_;
  Path directory_;
  std::size_t max_open_;
  Mutex mutex_;
  std::list<Entry> entries_ CKPT_GUARDED_BY(mutex_);  // most recently used first
  std::unordered_map<std::string, std::list<Entry>::iterator> by_name_ CKPT_GUARDED_BY(mutex_);
};

}  // namespace ckpt::dcp

#endif  // CKPT_FORMATS_DCP_FILE_CACHE_H_
