#include "core/exec/internal/item_writer.h"

#include <algorithm>

#include "core/base/result.h"

namespace ckpt {
namespace {

// Copying as many costs more than another call.
constexpr std::size_t kLargeBytes = 1 << 20;
// Storages write whole blocks of the disk fastest.
constexpr std::uint64_t kBlockBytes = 4096;

}  // namespace

ItemWriter::ItemWriter(WritableFile& out, std::uint64_t offset_bytes, ItemBuffers& buffers,
                       ZstdEncoder* encoder)
    : out_(out),
      begin_(offset_bytes),
      at_(offset_bytes),
      sums_(offset_bytes),
      buffers_(buffers),
      encoder_(encoder) {
  buffers_.pending.clear();
}

Status ItemWriter::Write(ByteSpan bytes) {
  if (encoder_ == nullptr) return Put(bytes);
  buffers_.encoded.clear();
  CKPT_RETURN_IF_ERROR(encoder_->Encode(bytes, buffers_.encoded));
  return Put(buffers_.encoded);
}

Status ItemWriter::Finish() {
  if (encoder_ != nullptr) {
    buffers_.encoded.clear();
    CKPT_RETURN_IF_ERROR(encoder_->Finish(buffers_.encoded));
    CKPT_RETURN_IF_ERROR(Put(buffers_.encoded));
  }
  return Flush();
}

Status ItemWriter::Put(ByteSpan bytes) {
  sums_.Update(bytes);
  const bool is_small = bytes.size() < kLargeBytes;
  if (is_small && buffers_.pending.size() + bytes.size() <= buffers_.window_bytes) {
    Append(bytes, buffers_.pending);
    return OkStatus();
  }
  // What lies before the first whole block and behind the last is joined with what is around it.
  const std::uint64_t begin = at_ + buffers_.pending.size();
  const std::uint64_t before = std::min<std::uint64_t>(bytes.size(), -begin % kBlockBytes);
  Append(bytes.first(before), buffers_.pending);
  CKPT_RETURN_IF_ERROR(Flush());
  const ByteSpan rest = bytes.subspan(before);
  const std::uint64_t behind = (at_ + rest.size()) % kBlockBytes;
  if (behind >= rest.size()) {
    Append(rest, buffers_.pending);
    return OkStatus();
  }
  CKPT_RETURN_IF_ERROR(WriteNow(rest.first(rest.size() - behind)));
  Append(rest.last(behind), buffers_.pending);
  return OkStatus();
}

Status ItemWriter::Flush() {
  CKPT_RETURN_IF_ERROR(WriteNow(buffers_.pending));
  buffers_.pending.clear();
  return OkStatus();
}

Status ItemWriter::WriteNow(ByteSpan bytes) {
  if (bytes.empty()) return OkStatus();
  CKPT_RETURN_IF_ERROR(out_.WriteAt(at_, bytes));
  out_.StartWriteback(at_, bytes.size());
  at_ += bytes.size();
  return OkStatus();
}

}  // namespace ckpt
