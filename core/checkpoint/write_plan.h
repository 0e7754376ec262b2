// WritePlan: every file of a checkpoint that is to be written, planned byte for byte before a
// tensor is read.
#ifndef CKPT_CORE_CHECKPOINT_WRITE_PLAN_H_
#define CKPT_CORE_CHECKPOINT_WRITE_PLAN_H_

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "core/base/bytes.h"
#include "core/io/path.h"
#include "core/tensor/box.h"
#include "core/tensor/dtype.h"
#include "core/tensor/shape.h"

namespace ckpt {

// A tensor of the target. Each of its chunks is one contiguous interval of the tensor's C order:
// one place in the first dims, a range of the next one, all of the last ones. Most are row blocks.
struct TargetTensor {
  std::string key;
  DType dtype = DType::kFloat32;
  Dims shape;
};

// One chunk of one tensor in one file: head, payload in C order, tail, without gaps.
struct WriteItem {
  std::uint32_t tensor = 0;  // position in WritePlan::tensors
  std::uint32_t file = 0;    // position in WritePlan::files
  Box box;
  std::uint64_t offset_bytes = 0;    // of the head
  std::uint64_t payload_offset = 0;  // in the file
  std::uint64_t payload_bytes = 0;
  std::uint64_t size_bytes = 0;  // head + payload + tail
  bool is_plain = false;         // stored as it is, although the plan compresses
};

// Bytes at a known offset that depend on no tensor: a header, a pickled object.
struct WriteLiteral {
  std::uint32_t file = 0;
  std::uint64_t offset_bytes = 0;
  Bytes bytes;
};

struct WriteFile {
  std::string name;  // relative, '/' between components
  std::uint64_t size_bytes = 0;
};

// A side file that is copied unchanged.
struct WriteCopy {
  Path from;
  std::string name;
};

// Where an item lies in its file.
struct ItemExtent {
  std::uint64_t offset_bytes = 0;
  std::uint64_t size_bytes = 0;

  friend bool operator==(const ItemExtent&, const ItemExtent&) = default;
};

// The bytes that a format puts around a payload. It has no state except the plan it belongs to.
// Thread-safe.
class ItemFraming {
 public:
  virtual ~ItemFraming() = default;
  // The bytes before the payload: exactly payload_offset - offset_bytes of them.
  [[nodiscard]] virtual Bytes Head(const TargetTensor& tensor, const WriteItem& item) const = 0;
  // The bytes after the payload, which may contain the payload's CRC-32 (as in zip).
  [[nodiscard]] virtual Bytes Tail(const TargetTensor& tensor, const WriteItem& item,
                                   std::uint32_t payload_crc32) const = 0;
  // Whether Tail uses the CRC. Computing it costs time.
  [[nodiscard]] virtual bool needs_crc32() const = 0;
};

// Puts nothing around the payload.
class NoFraming final : public ItemFraming {
 public:
  [[nodiscard]] Bytes Head(const TargetTensor& /*t*/, const WriteItem& /*i*/) const override {
    return {};
  }
  [[nodiscard]] Bytes Tail(const TargetTensor& /*t*/, const WriteItem& /*i*/,
                           std::uint32_t /*c*/) const override {
    return {};
  }
  [[nodiscard]] bool needs_crc32() const override { return false; }
};

// Stores every item, except plain ones, as one zstd frame around head, payload and tail. The length
// of a frame is known only after it was written. So the items of a file follow each other in plan
// order, without gaps, from the file's planned size on, and the late bytes say where they lie.
struct ItemCompression {
  int zstd_level = 0;
  // The encoder and its version, which also decide the bytes.
  std::string encoder;
};

// An item as it was written.
struct WrittenItem {
  ItemExtent extent;
  std::uint32_t payload_crc32 = 0;  // 0 if nothing in the plan uses it

  friend bool operator==(const WrittenItem&, const WrittenItem&) = default;
};

// A box of a tensor that a writer was asked for, whose elements, in C order, lie in another of its
// tensors from `first_elem` on.
struct PackedPart {
  std::string tensor;  // its key
  Box box;
  std::int64_t first_elem = 0;

  friend bool operator==(const PackedPart&, const PackedPart&) = default;
};

// By the key of the tensor in which they lie.
using PackedParts = std::map<std::string, std::vector<PackedPart>>;

struct WritePlan;

// Bytes that depend on the items as they were written: where compressed ones lie, the checksums of
// their payloads. They are written last.
struct LateBytes {
  // Positions in `files` of those that `encode` adds to.
  std::vector<std::uint32_t> files;
  // Whether `encode` uses the payloads' CRC-32. Computing it costs time.
  bool uses_crc32 = false;
  // Literals for these files, where no item and no other literal lies. `items` is parallel to the
  // plan's. Where they lie and how long they are does not depend on the checksums. A pure function.
  std::function<std::vector<WriteLiteral>(const WritePlan& plan,
                                          std::span<const WrittenItem> items)>
      encode;
};

// A pure value: the same plan gives the same bytes, for any number of threads.
//
// Invariants, checked by CheckWritePlan. In every file, literals and items tile [0, size) without
// overlap. Gaps are allowed where the format ignores them; they read as zero. The items of a tensor
// are consecutive in `items`, in C order, and cover it exactly once. With `compression`,
// offsets count from the item's own start, sizes are those before compression, file sizes are those
// without items and late bytes, and there are late bytes.
struct WritePlan {
  std::vector<WriteFile> files;
  std::vector<TargetTensor> tensors;
  std::vector<WriteItem> items;
  std::vector<WriteLiteral> literals;
  // Tensors that the checkpoint has besides `tensors`: literals have their elements.
  std::vector<TargetTensor> known_tensors = {};
  std::vector<WriteCopy> copies;
  std::shared_ptr<const ItemFraming> framing = std::make_shared<NoFraming>();
  std::optional<ItemCompression> compression = {};
  std::optional<LateBytes> late_bytes = {};
  // The tensors of one dim that are made of parts of others; between these are zeros. The writer
  // was asked for all other tensors as they are.
  PackedParts packed = {};
};

}  // namespace ckpt

#endif  // CKPT_CORE_CHECKPOINT_WRITE_PLAN_H_
