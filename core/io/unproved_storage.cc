#include "core/io/unproved_storage.h"

#include <functional>
#include <utility>

#include "core/io/forwarding_storage.h"

namespace ckpt {
namespace {

class UnprovedFile final : public ReadableFile {
 public:
  explicit UnprovedFile(std::shared_ptr<const ReadableFile> behind) : behind_(std::move(behind)) {}

  [[nodiscard]] std::uint64_t size_bytes() const override { return behind_->size_bytes(); }
  [[nodiscard]] const std::string& name() const override { return behind_->name(); }
  [[nodiscard]] bool is_checked() const override { return true; }
  Status ReadAt(std::uint64_t offset, MutableByteSpan out) const override {
    return behind_->ReadAt(offset, out);
  }
  Status ReadInPieces(std::uint64_t offset, MutableByteSpan out,
                      const std::function<Status(ByteSpan)>& seen) const override {
    return behind_->ReadInPieces(offset, out, seen);
  }
  [[nodiscard]] Result<std::unique_ptr<FileView>> View() const override { return behind_->View(); }

 private:
  std::shared_ptr<const ReadableFile> behind_;
};

class UnprovedStorage final : public ForwardingStorage {
 public:
  using ForwardingStorage::ForwardingStorage;

  Result<std::shared_ptr<const ReadableFile>> Open(const Path& path) override {
    CKPT_ASSIGN_OR_RETURN(std::shared_ptr<const ReadableFile> file, behind().Open(path));
    return std::shared_ptr<const ReadableFile>(std::make_shared<UnprovedFile>(std::move(file)));
  }
};

}  // namespace

std::unique_ptr<Storage> MakeUnprovedStorage(Storage& storage) {
  return std::make_unique<UnprovedStorage>(storage);
}

}  // namespace ckpt
