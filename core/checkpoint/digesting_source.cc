#include "core/checkpoint/digesting_source.h"

#include <algorithm>
#include <utility>

#include "core/base/mutex.h"
#include "core/checkpoint/lies_in_order.h"

namespace ckpt {
// The bytes of a tensor, as far as they were read in order.
class DigestingSource::Stream {
 public:
  Stream(std::uint64_t size_bytes, HashAlgorithm algorithm)
      : size_bytes_(size_bytes), hasher_(algorithm) {}

  // `bytes` were read from `at` on.
  void See(std::uint64_t at, ByteSpan bytes) CKPT_EXCLUDES(mutex_) {
    const MutexLock lock(mutex_);
    if (at >= size_bytes_) return;
    bytes = bytes.first(std::min<std::uint64_t>(bytes.size(), size_bytes_ - at));
    if (at > next_ || bytes.size() <= next_ - at) return;
    hasher_.Update(bytes.subspan(next_ - at));
    next_ = at + bytes.size();
    if (next_ == size_bytes_) hex_ = hasher_.Finish();
  }

  [[nodiscard]] std::optional<std::string> Digest() CKPT_EXCLUDES(mutex_) {
    const MutexLock lock(mutex_);
    return hex_.empty() ? std::nullopt : std::optional(hex_);
  }

 private:
  const std::uint64_t size_bytes_;
  Mutex mutex_;
  Hasher hasher_ CKPT_GUARDED_BY(mutex_);
  std::uint64_t next_ CKPT_GUARDED_BY(mutex_) = 0;
  std::string hex_ CKPT_GUARDED_BY(mutex_);  // empty until all was seen
};

// The file of a tensor that begins at `begin_bytes` of it.
class DigestingSource::File final : public ReadableFile {
 public:
  File(std::shared_ptr<const ReadableFile> behind, std::uint64_t begin_bytes,
       std::shared_ptr<Stream> stream)
      : behind_(std::move(behind)), begin_bytes_(begin_bytes), stream_(std::move(stream)) {}

  [[nodiscard]] std::uint64_t size_bytes() const override { return behind_->size_bytes(); }
  [[nodiscard]] const std::string& name() const override { return behind_->name(); }
  [[nodiscard]] bool is_checked() const override { return behind_->is_checked(); }
  Status ReadAt(std::uint64_t offset, MutableByteSpan out) const override {
    CKPT_RETURN_IF_ERROR(behind_->ReadAt(offset, out));
    if (offset >= begin_bytes_) stream_->See(offset - begin_bytes_, out);
    return OkStatus();
  }
  [[nodiscard]] Result<std::unique_ptr<FileView>> View() const override { return behind_->View(); }

 private:
  const std::shared_ptr<const ReadableFile> behind_;
  const std::uint64_t begin_bytes_;
  const std::shared_ptr<Stream> stream_;
};

DigestingSource::DigestingSource(const CheckpointSource& below,
                                 std::span<const std::uint32_t> tensors, HashAlgorithm algorithm)
    : ForwardingSource(below) {
  for (const std::uint32_t position : tensors) {
    const GlobalTensor& tensor = below.index().tensors()[position];
    streams_.emplace(position,
                     std::make_shared<Stream>(NumBytes(tensor.shape, tensor.dtype), algorithm));
  }
}

std::optional<std::string> DigestingSource::Digest(std::uint32_t tensor) const {
  const auto found = streams_.find(tensor);
  return found == streams_.end() ? std::nullopt : found->second->Digest();
}

Result<StoredArray> DigestingSource::Locate(const GlobalTensor& tensor, const Chunk& chunk) const {
  CKPT_ASSIGN_OR_RETURN(StoredArray array, below().Locate(tensor, chunk));
  const auto found = streams_.find(static_cast<std::uint32_t>(&tensor - index().tensors().data()));
  if (found == streams_.end()) return array;
  if (index().box(chunk) == WholeBox(tensor.shape) && array.dtype == tensor.dtype &&
      LiesInOrder(array, tensor.shape)) {
    array.file = std::make_shared<File>(std::move(array.file), array.offset_bytes, found->second);
  }
  return array;
}

}  // namespace ckpt
