// Storage that counts what is read of its files. Reads may be made to fail.
#ifndef CKPT_TESTS_TESTING_COUNTING_STORAGE_H_
#define CKPT_TESTS_TESTING_COUNTING_STORAGE_H_

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>

#include "core/io/forwarding_storage.h"
#include "core/io/storage.h"

namespace ckpt::testing {

// Files whose paths do not begin with `below` are left alone, and views are not counted.
// Thread-safe if the storage behind it is.
class CountingStorage final : public ForwardingStorage {
 public:
  explicit CountingStorage(Storage& behind, const Path& below = {})
      : ForwardingStorage(behind), below_(below.string()) {}
  Result<std::shared_ptr<const ReadableFile>> Open(const Path& path) override {
    CKPT_ASSIGN_OR_RETURN(auto file, behind().Open(path));
    if (!path.string().starts_with(below_)) return file;
    return std::shared_ptr<const ReadableFile>(std::make_shared<File>(std::move(file), *this));
  }
  [[nodiscard]] std::uint64_t bytes_read() const { return bytes_read_; }
  // From now on, or once so many more bytes were read.
  void FailReads(std::uint64_t after_bytes = 0) { most_bytes_ = bytes_read_ + after_bytes; }

 private:
  class File final : public ReadableFile {
   public:
    File(std::shared_ptr<const ReadableFile> behind, CountingStorage& storage)
        : behind_(std::move(behind)), storage_(storage) {}
    [[nodiscard]] std::uint64_t size_bytes() const override { return behind_->size_bytes(); }
    [[nodiscard]] const std::string& name() const override { return behind_->name(); }
    Status ReadAt(std::uint64_t offset, MutableByteSpan out) const override {
      if (storage_.bytes_read_ >= storage_.most_bytes_) return Error(ErrorKind::kIo, "unreadable");
      storage_.bytes_read_ += out.size();
      return behind_->ReadAt(offset, out);
    }
    Result<std::unique_ptr<FileView>> View() const override { return behind_->View(); }

   private:
    std::shared_ptr<const ReadableFile> behind_;
    CountingStorage& storage_;
  };

  const std::string below_;
  std::atomic<std::uint64_t> bytes_read_ = 0;
  std::atomic<std::uint64_t> most_bytes_ = ~std::uint64_t{0};
};

}  // namespace ckpt::testing

#endif  // CKPT_TESTS_TESTING_COUNTING_STORAGE_H_
