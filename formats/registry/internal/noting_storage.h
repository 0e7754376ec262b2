// Finds out which files a reader uses.
#ifndef CKPT_FORMATS_REGISTRY_INTERNAL_NOTING_STORAGE_H_
#define CKPT_FORMATS_REGISTRY_INTERNAL_NOTING_STORAGE_H_

#include <functional>
#include <memory>
#include <set>
#include <string>
#include <utility>

#include "core/base/mutex.h"
#include "core/base/result.h"
#include "core/io/forwarding_storage.h"
#include "core/io/path.h"

namespace ckpt {

// Forwards to another storage, and notes which files are opened. Thread-safe if the other one is.
class NotingStorage final : public ForwardingStorage {
 public:
  using ForwardingStorage::ForwardingStorage;

  Result<std::shared_ptr<const ReadableFile>> Open(const Path& path) override {
    CKPT_ASSIGN_OR_RETURN(std::shared_ptr<const ReadableFile> file, behind().Open(path));
    const MutexLock lock(mutex_);
    if (is_noting_) opened_.insert(path.string());
    return file;
  }

  // The paths of the files that were opened, as they were given. Those of later ones are not noted.
  [[nodiscard]] std::set<std::string, std::less<>> Finish() CKPT_EXCLUDES(mutex_) {
    const MutexLock lock(mutex_);
    is_noting_ = false;
    return std::exchange(opened_, {});
  }

 private:
  Mutex mutex_;
  bool is_noting_ CKPT_GUARDED_BY(mutex_) = true;
  std::set<std::string, std::less<>> opened_ CKPT_GUARDED_BY(mutex_);
};

}  // namespace ckpt

#endif  // CKPT_FORMATS_REGISTRY_INTERNAL_NOTING_STORAGE_H_
