// Writes one item of a file front to back.
#ifndef CKPT_CORE_EXEC_ITEM_WRITER_H_
#define CKPT_CORE_EXEC_ITEM_WRITER_H_

#include <cstdint>
#include <vector>

#include "core/base/bytes.h"
#include "core/base/status.h"
#include "core/codec/zstd.h"
#include "core/exec/block_checksums.h"
#include "core/io/storage.h"

namespace ckpt {

// What outlives an item, one a thread: fresh pages cost more than copying into old ones.
struct ItemBuffers {
  std::uint64_t window_bytes = 0;
  Bytes pending = {};  // small parts on their way into one write
  Bytes encoded = {};  // a window's worth of a frame
};

// Small parts are gathered, large ones passed through, checksums computed on the way. One thread.
class ItemWriter {
 public:
  // All of them must outlive this. An encoder (null: none) has begun its frame.
  ItemWriter(WritableFile& out, std::uint64_t offset_bytes, ItemBuffers& buffers,
             ZstdEncoder* encoder);

  // The next bytes of the item, before they are encoded.
  Status Write(ByteSpan bytes);
  // Nothing follows.
  Status Finish();

  // What lies in the file. REQUIRES: Finish was OK.
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

#endif  // CKPT_CORE_EXEC_ITEM_WRITER_H_
