#include "core/io/range_crc.h"

#include <algorithm>
#include <utility>

#include <fmt/format.h>

#include "core/base/bytes.h"
#include "core/base/hash.h"
#include "core/base/units.h"

namespace ckpt {
namespace {

Status CompareCrc32(const ReadableFile& file, std::string_view what, std::uint64_t offset,
                    std::uint64_t size_bytes, std::uint32_t expected, std::uint32_t actual) {
  if (actual == expected) return OkStatus();
  return Error(ErrorKind::kChecksum, fmt::format("CRC-32 of {} differs", what))
      .File(DescribeRange(file.name(), offset, size_bytes))
      .Expected(Hex32(expected))
      .Actual(Hex32(actual));
}

class FileReadInOrder final : public ReadableFile {
 public:
  FileReadInOrder(std::shared_ptr<const ReadableFile> file, std::string what, std::uint64_t offset,
                  std::uint64_t size_bytes, std::uint32_t expected_crc32)
      : file_(std::move(file)),
        what_(std::move(what)),
        offset_(offset),
        size_bytes_(size_bytes),
        expected_(expected_crc32) {}

  [[nodiscard]] std::uint64_t size_bytes() const override { return file_->size_bytes(); }
  [[nodiscard]] const std::string& name() const override { return file_->name(); }
  [[nodiscard]] Result<std::unique_ptr<FileView>> View() const override { return file_->View(); }

  Status ReadAt(std::uint64_t offset, MutableByteSpan out) const override {
    CKPT_RETURN_IF_ERROR(difference_);
    if (is_compared_) return file_->ReadAt(offset, out);
    if (offset != offset_ + done_ || out.size() > size_bytes_ - done_) {
      CKPT_RETURN_IF_ERROR(Keep(VerifyRangeCrc32(*file_, what_, offset_, size_bytes_, expected_)));
      return file_->ReadAt(offset, out);
    }
    std::uint32_t actual = actual_;
    CKPT_RETURN_IF_ERROR(file_->ReadInPieces(offset, out, [&](ByteSpan piece) {
      actual = Crc32(piece, actual);
      return OkStatus();
    }));
    actual_ = actual;
    done_ += out.size();
    if (done_ != size_bytes_) return OkStatus();
    return Keep(CompareCrc32(*file_, what_, offset_, size_bytes_, expected_, actual_));
  }

 private:
  // What a comparison found. One that could not read everything found nothing.
  Status Keep(Status compared) const {
    is_compared_ = compared.ok();
    if (!compared.ok() && compared.kind() == ErrorKind::kChecksum) difference_ = compared;
    return compared;
  }

  const std::shared_ptr<const ReadableFile> file_;
  const std::string what_;
  const std::uint64_t offset_;
  const std::uint64_t size_bytes_;
  const std::uint32_t expected_;
  mutable std::uint64_t done_ = 0;
  mutable std::uint32_t actual_ = 0;  // of the bytes that are done
  mutable bool is_compared_ = false;  // and they are the right ones
  mutable Status difference_;         // found: all reads fail
};

}  // namespace

Status VerifyRangeCrc32(const ReadableFile& file, std::string_view what, std::uint64_t offset,
                        std::uint64_t size_bytes, std::uint32_t expected_crc32) {
  if (file.is_checked()) return OkStatus();
  Bytes block(std::min<std::uint64_t>(size_bytes, kMiB));
  std::uint32_t actual = 0;
  for (std::uint64_t done = 0; done < size_bytes;) {
    const MutableByteSpan part =
        MutableByteSpan(block).first(std::min<std::uint64_t>(block.size(), size_bytes - done));
    CKPT_RETURN_IF_ERROR(file.ReadAt(offset + done, part));
    actual = Crc32(part, actual);
    done += part.size();
  }
  return CompareCrc32(file, what, offset, size_bytes, expected_crc32, actual);
}

std::shared_ptr<const ReadableFile> CheckCrc32InOrder(std::shared_ptr<const ReadableFile> file,
                                                      std::string what, std::uint64_t offset,
                                                      std::uint64_t size_bytes,
                                                      std::uint32_t expected_crc32) {
  if (file->is_checked()) return file;
  return std::make_shared<FileReadInOrder>(std::move(file), std::move(what), offset, size_bytes,
                                           expected_crc32);
}

}  // namespace ckpt
