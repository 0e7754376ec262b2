#include "core/exec/internal/item_writer.h"

#include "core/base/result.h"

namespace ckpt {

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
  if (buffers_.pending.size() + bytes.size() <= buffers_.window_bytes) {
    Append(bytes, buffers_.pending);
    return OkStatus();
  }
  CKPT_RETURN_IF_ERROR(Flush());
  return WriteNow(bytes);
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
