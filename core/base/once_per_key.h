// OncePerKey: work that several threads ask for is done once.
#ifndef CKPT_CORE_BASE_ONCE_PER_KEY_H_
#define CKPT_CORE_BASE_ONCE_PER_KEY_H_

#include <memory>
#include <unordered_map>

#include "core/base/mutex.h"
#include "core/base/status.h"

namespace ckpt {

// Thread-safe.
template <typename Key>
class OncePerKey {
 public:
  // Calls `work`, which returns a Status, unless a call for `key` was done before. Who comes while
  // one is under way waits for it. Errors: those of `work`; the next caller tries again.
  template <typename Work>
  Status Run(const Key& key, const Work& work) {
    Entry& entry = Find(key);
    const MutexLock lock(entry.mutex);
    if (entry.is_done) return OkStatus();
    Status status = work();
    entry.is_done = status.ok();
    return status;
  }

 private:
  struct Entry {
    Mutex mutex;
    bool is_done CKPT_GUARDED_BY(mutex) = false;
  };

  Entry& Find(const Key& key) CKPT_EXCLUDES(mutex_) {
    const MutexLock lock(mutex_);
    std::unique_ptr<Entry>& entry = entries_[key];
    if (entry == nullptr) entry = std::make_unique<Entry>();
    return *entry;
  }

  Mutex mutex_;
  std::unordered_map<Key, std::unique_ptr<Entry>> entries_ CKPT_GUARDED_BY(mutex_);
};

}  // namespace ckpt

#endif  // CKPT_CORE_BASE_ONCE_PER_KEY_H_
