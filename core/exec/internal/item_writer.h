// Writes one item of a file front to back.
#ifndef CKPT_CORE_EXEC_INTERNAL_ITEM_WRITER_H_
#define CKPT_CORE_EXEC_INTERNAL_ITEM_WRITER_H_

#include <cstdint>
#include <vector>

#include "core/base/bytes.h"
#include "core/base/status.h"
#include "core/codec/zstd.h"
#include "core/exec/block_checksums.h"
#include "core/io/storage.h"

namespace ckpt {

// Buffers that are reused for all items of a thread: new pages cost more than copying into old
// ones.
struct ItemBuffers {
  std::uint64_t window_bytes = 0;
  Bytes pending = {};  // small parts that are joined into one write
  Bytes encoded = {};  // the encoded bytes of one window
};

// Joins small parts, writes large ones directly, and computes the checksums. For one thread.
class ItemWriter {
 public:
  // All arguments must outlive this. An encoder (null: none) must have begun its frame.
  ItemWriter(WritableFile& out, std::uint64_t offset_bytes, ItemBuffers& buffers,
             ZstdEncoder* encoder);

  // The next bytes of the item, before they are encoded.
  Status Write(ByteSpan bytes);
  // Ends the item.
  Status Finish();

  // Bytes of the item in the file. REQUIRES: Finish was OK.
  [[nodiscard]] std::uint64_t size_bytes() const { return at_ - begin_; }
  [[nodiscard]] const std::vector<ChecksumPiece>& pieces() const { return sums_.pieces(); }

 private:
  Status Put(ByteSpan bytes);
  Status Flush();
  Status WriteNow(ByteSpan bytes);

  WritableFile& out_;
  const std::uint64_t begin_;
  std::uint64_t at_;
  ChecksumStream sums_;
  ItemBuffers& buffers_;
  ZstdEncoder* encoder_;
};

}  // namespace ckpt

#endif  // CKPT_CORE_EXEC_INTERNAL_ITEM_WRITER_H_
