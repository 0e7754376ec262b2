// Storage that fails: every mutating call of another storage is counted, and one of them, or all
// from one on, fail.
#ifndef CKPT_TESTS_TESTING_FAULT_STORAGE_H_
#define CKPT_TESTS_TESTING_FAULT_STORAGE_H_

#include <atomic>
#include <memory>
#include <utility>

#include "core/io/forwarding_storage.h"
#include "core/io/storage.h"

namespace ckpt::testing {

// Thread-safe if the storage behind it is.
class FaultStorage final : public ForwardingStorage {
 public:
  enum class Mode { kOnce, kFromThenOn };

  // Fails mutating call number `fail_at` (from 0) with `kind`; a negative number fails nothing and
  // only counts.
  FaultStorage(Storage& behind, int fail_at, ErrorKind kind = ErrorKind::kIo,
               Mode mode = Mode::kFromThenOn)
      : ForwardingStorage(behind), fault_{fail_at, kind, mode, 0} {}

  // Mutating calls so far.
  int calls() const { return fault_.calls; }

  Result<std::unique_ptr<WritableFile>> Create(const Path& path) override {
    CKPT_RETURN_IF_ERROR(fault_.Check("create"));
    return Wrap(behind().Create(path));
  }
  Result<std::unique_ptr<WritableFile>> OpenForUpdate(const Path& path) override {
    CKPT_RETURN_IF_ERROR(fault_.Check("open for update"));
    return Wrap(behind().OpenForUpdate(path));
  }
  Status MakeDirectories(const Path& directory) override {
    CKPT_RETURN_IF_ERROR(fault_.Check("make directories"));
    return behind().MakeDirectories(directory);
  }
  Status Rename(const Path& from, const Path& to) override {
    CKPT_RETURN_IF_ERROR(fault_.Check("rename"));
    return behind().Rename(from, to);
  }
  Status Exchange(const Path& a, const Path& b) override {
    CKPT_RETURN_IF_ERROR(fault_.Check("exchange"));
    return behind().Exchange(a, b);
  }
  Status RemoveAll(const Path& path) override {
    CKPT_RETURN_IF_ERROR(fault_.Check("remove"));
    return behind().RemoveAll(path);
  }
  Status RemoveEmptyDirectory(const Path& directory) override {
    CKPT_RETURN_IF_ERROR(fault_.Check("remove directory"));
    return behind().RemoveEmptyDirectory(directory);
  }
  Status SyncDirectory(const Path& directory) override {
    CKPT_RETURN_IF_ERROR(fault_.Check("sync directory"));
    return behind().SyncDirectory(directory);
  }

 private:
  struct Fault {
    int fail_at;
    ErrorKind kind;
    Mode mode;
    std::atomic<int> calls;

    Status Check(std::string_view operation) {
      const int call = calls++;
      const bool fails = fail_at >= 0 && (mode == Mode::kOnce ? call == fail_at : call >= fail_at);
      return fails ? Error(kind, "injected fault").Actual(operation) : OkStatus();
    }
  };

  class FaultFile final : public WritableFile {
   public:
    FaultFile(std::unique_ptr<WritableFile> behind, Fault& fault)
        : behind_(std::move(behind)), fault_(fault) {}
    const std::string& name() const override { return behind_->name(); }
    Status WriteAt(std::uint64_t offset, ByteSpan bytes) override {
      CKPT_RETURN_IF_ERROR(fault_.Check("write"));
      return behind_->WriteAt(offset, bytes);
    }
    Status Resize(std::uint64_t size_bytes) override {
      CKPT_RETURN_IF_ERROR(fault_.Check("resize"));
      return behind_->Resize(size_bytes);
    }
    void StartWriteback(std::uint64_t offset, std::uint64_t length) override {
      behind_->StartWriteback(offset, length);
    }
    Status Sync() override {
      CKPT_RETURN_IF_ERROR(fault_.Check("sync"));
      return behind_->Sync();
    }
    Status Lock() override { return behind_->Lock(); }
    Status Close() override {
      CKPT_RETURN_IF_ERROR(fault_.Check("close"));
      return behind_->Close();
    }

   private:
    std::unique_ptr<WritableFile> behind_;
    Fault& fault_;
  };

  Result<std::unique_ptr<WritableFile>> Wrap(Result<std::unique_ptr<WritableFile>> file) {
    if (!file.ok()) return file;
    return std::unique_ptr<WritableFile>(
        std::make_unique<FaultFile>(std::move(file).value(), fault_));
  }

  Fault fault_;
};

}  // namespace ckpt::testing

#endif  // CKPT_TESTS_TESTING_FAULT_STORAGE_H_
