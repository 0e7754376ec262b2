// Open files, as many as may be open at a time.
#ifndef CKPT_CORE_IO_FILE_CACHE_H_
#define CKPT_CORE_IO_FILE_CACHE_H_

#include <cstddef>
#include <functional>
#include <list>
#include <memory>
#include <string>
#include <unordered_map>
#include <utility>

#include "core/base/mutex.h"
#include "core/base/result.h"
#include "core/io/storage.h"

namespace ckpt {

// Thread-safety: thread-safe. A file that somebody still holds stays open after it left the cache.
class FileCache {
 public:
  using OpenFunction =
      std::function<Result<std::shared_ptr<const ReadableFile>>(const std::string& name)>;

  // `open` is called by several threads at a time. `max_open`: a process has few descriptors.
  explicit FileCache(OpenFunction open, std::size_t max_open = 256)
      : open_(std::move(open)), max_open_(max_open) {}

  // The file of this name. Of threads that open it at the same time, all get the same one. Errors:
  // those of `open`.
  Result<std::shared_ptr<const ReadableFile>> Open(const std::string& name) CKPT_EXCLUDES(mutex_);

 private:
  struct Entry {
    std::string name;
    std::shared_ptr<const ReadableFile> file;
  };

  const OpenFunction open_;
  const std::size_t max_open_;
  Mutex mutex_;
  std::list<Entry> entries_ CKPT_GUARDED_BY(mutex_);  // most recently used first
  std::unordered_map<std::string, std::list<Entry>::iterator> by_name_ CKPT_GUARDED_BY(mutex_);
};

}  // namespace ckpt

#endif  // CKPT_CORE_IO_FILE_CACHE_H_
