// WritePlan: every file of a checkpoint that is to be written, byte for byte, before a tensor is
// read.
#ifndef CKPT_CORE_CHECKPOINT_WRITE_PLAN_H_
#define CKPT_CORE_CHECKPOINT_WRITE_PLAN_H_

#include <cstdint>
#include <functional>
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

// A tensor of the target. Chunks are row blocks: whole in every dim but the first, so that each is
// one contiguous interval of the tensor's C order.
struct TargetTensor {
  std::string key;
  DType dtype = DType::kFloat32;
  Dims shape;
};

// One chunk of one tensor in one file: head, payload in C order, tail, without gaps between them.
struct WriteItem {
  std::uint32_t tensor = 0;  // position in WritePlan::tensors
  std::uint32_t file = 0;    // position in WritePlan::files
  Box box;
  std::uint64_t offset_bytes = 0;    // of the head
  std::uint64_t payload_offset = 0;  // in the file
  std::uint64_t payload_bytes = 0;
  std::uint64_t size_bytes = 0;  // head + payload + tail
};

// Bytes at a known place that depend on no tensor: a header, a pickled object.
struct WriteLiteral {
  std::uint32_t file = 0;
  std::uint64_t offset_bytes = 0;
  Bytes bytes;
};

struct WriteFile {
  std::string name;  // relative, '/' between components
  std::uint64_t size_bytes = 0;
};

// A side file taken over byte for byte.
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

// What surrounds payloads in a format. Stateless apart from the plan it belongs to; thread-safe.
class ItemFraming {
 public:
  virtual ~ItemFraming() = default;
  // The bytes before the payload: exactly payload_offset - offset_bytes of them.
  [[nodiscard]] virtual Bytes Head(const TargetTensor& tensor, const WriteItem& item) const = 0;
  // The bytes behind it, which may carry the payload's CRC-32 (as in zip).
  [[nodiscard]] virtual Bytes Tail(const TargetTensor& tensor, const WriteItem& item,
                                   std::uint32_t payload_crc32) const = 0;
  // Whether Tail looks at the CRC; computing it costs time.
  [[nodiscard]] virtual bool needs_crc32() const = 0;
};

// Nothing around the payload.
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

struct WritePlan;

// Every item is stored as one zstd frame around head, payload and tail. How long a frame is shows
// only when it has been written: the items of a file follow each other in plan order, without gaps,
// behind its literals; and the file that says where they lie is made last.
struct ItemCompression {
  int zstd_level = 0;
  // The encoder and its version, which also decide the bytes.
  std::string encoder;
  // Position in `files`: the one made last, which has no other content.
  std::uint32_t index_file = 0;
  // Its bytes. `extents` is parallel to the plan's items. A pure function.
  std::function<Bytes(const WritePlan& plan, std::span<const ItemExtent> extents)> encode_index;
};

// A pure value: the same plan gives the same bytes, whatever the number of threads.
//
// Invariants, checked by CheckWritePlan: in every file, literals and items tile [0, size)
// without overlap, gaps being allowed where the format ignores them (they read as zero); the items
// of a tensor are consecutive in `items`, in order of their rows, and cover it exactly once. With
// `compression`, offsets of items count from their own start, their sizes are those before
// compression, and sizes of files are those of the literals.
struct WritePlan {
  std::vector<WriteFile> files;
  std::vector<TargetTensor> tensors;
  std::vector<WriteItem> items;
  std::vector<WriteLiteral> literals;
  std::vector<WriteCopy> copies;
  std::shared_ptr<const ItemFraming> framing = std::make_shared<NoFraming>();
  std::optional<ItemCompression> compression = {};
};

}  // namespace ckpt

#endif  // CKPT_CORE_CHECKPOINT_WRITE_PLAN_H_
