// BlockParts: the checksum of a block that is read in parts, by anybody and in any order.
#ifndef CKPT_CORE_MANIFEST_INTERNAL_BLOCK_PARTS_H_
#define CKPT_CORE_MANIFEST_INTERNAL_BLOCK_PARTS_H_

#include <cstdint>
#include <map>
#include <optional>
#include <vector>

#include "core/base/bytes.h"

namespace ckpt {

// Offsets count from the start of the block. One thread.
class BlockParts {
 public:
  explicit BlockParts(std::uint64_t size_bytes) : size_bytes_(size_bytes) {}

  // Adds bytes at `begin`, whose CRC-32C is `crc32c`. Those of a place that was added before are
  // left out: each counts once.
  void Add(std::uint64_t begin, ByteSpan bytes, std::uint32_t crc32c);

  struct Gap {
    std::uint64_t begin = 0;
    std::uint64_t size_bytes = 0;
  };
  // The first bytes that are missing; nothing if all are there.
  [[nodiscard]] std::optional<Gap> FirstGap() const;

  // Of the whole block. REQUIRES: there is no gap.
  [[nodiscard]] std::uint32_t crc32c() const { return parts_.begin()->second.crc32c; }

 private:
  struct Part {
    std::uint64_t end = 0;
    std::uint32_t crc32c = 0;
  };

  // What is missing between `begin` and `end`, in order.
  [[nodiscard]] std::vector<Gap> GapsIn(std::uint64_t begin, std::uint64_t end) const;
  // REQUIRES: none of the bytes is there.
  void AddNew(std::uint64_t begin, Part part);

  const std::uint64_t size_bytes_;
  std::map<std::uint64_t, Part> parts_;  // by where they begin; no two touch each other
};

}  // namespace ckpt

#endif  // CKPT_CORE_MANIFEST_INTERNAL_BLOCK_PARTS_H_
