// Base for storages that wrap another one and change some of its calls.
#ifndef CKPT_CORE_IO_FORWARDING_STORAGE_H_
#define CKPT_CORE_IO_FORWARDING_STORAGE_H_

#include <memory>
#include <vector>

#include "core/base/result.h"
#include "core/io/path.h"
#include "core/io/storage.h"

namespace ckpt {

// Forwards every call to the storage behind it, which must outlive this.
class ForwardingStorage : public Storage {
 public:
  explicit ForwardingStorage(Storage& behind) : behind_(behind) {}

  Result<std::shared_ptr<const ReadableFile>> Open(const Path& path) override {
    return behind_.Open(path);
  }
  Result<std::unique_ptr<WritableFile>> Create(const Path& path) override {
    return behind_.Create(path);
  }
  Result<std::unique_ptr<WritableFile>> OpenForUpdate(const Path& path) override {
    return behind_.OpenForUpdate(path);
  }
  Result<FileStat> Stat(const Path& path) override { return behind_.Stat(path); }
  Result<std::vector<DirectoryEntry>> List(const Path& directory) override {
    return behind_.List(directory);
  }
  Status MakeDirectories(const Path& directory) override {
    return behind_.MakeDirectories(directory);
  }
  Status Rename(const Path& from, const Path& to) override { return behind_.Rename(from, to); }
  Status Exchange(const Path& a, const Path& b) override { return behind_.Exchange(a, b); }
  Status RemoveAll(const Path& path) override { return behind_.RemoveAll(path); }
  Status RemoveEmptyDirectory(const Path& directory) override {
    return behind_.RemoveEmptyDirectory(directory);
  }
  Result<std::unique_ptr<DirectoryLock>> Lock(const Path& directory) override {
    return behind_.Lock(directory);
  }
  Status SyncDirectory(const Path& directory) override { return behind_.SyncDirectory(directory); }

 protected:
  [[nodiscard]] Storage& behind() const { return behind_; }

 private:
  Storage& behind_;
};

}  // namespace ckpt

#endif  // CKPT_CORE_IO_FORWARDING_STORAGE_H_
