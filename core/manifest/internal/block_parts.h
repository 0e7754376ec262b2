// The checksum of a block that is read in parts.
#ifndef CKPT_CORE_MANIFEST_INTERNAL_BLOCK_PARTS_H_
#define CKPT_CORE_MANIFEST_INTERNAL_BLOCK_PARTS_H_

#include <cstdint>
#include <functional>
#include <map>
#include <span>
#include <vector>

#include "core/base/bytes.h"
#include "core/base/result.h"
#include "core/manifest/block_part.h"

namespace ckpt {

// The parts that the readers of a process have read, in any order. Offsets count from the start of
// the block. One thread.
class BlockParts {
 public:
  explicit BlockParts(std::uint64_t size_bytes) : left_bytes_(size_bytes) {}

  struct Part {
    std::uint64_t end = 0;
    std::uint32_t crc32c = 0;
  };

  // Adds bytes at `begin`, whose CRC-32C is `crc32c`. Those of a place that was added before are
  // left out: each counts once.
  void Add(std::uint64_t begin, ByteSpan bytes, std::uint32_t crc32c);

  // Whether all bytes were added.
  [[nodiscard]] bool is_complete() const { return left_bytes_ == 0; }
  // Of the whole block. REQUIRES: it is complete. Cost: one concatenation per part.
  [[nodiscard]] std::uint32_t crc32c() const;
  // By where they begin. No two overlap, and each is as it was read, not joined with what it
  // touches: other readers have often read some of the same ones (headers), and can be compared.
  [[nodiscard]] const std::map<std::uint64_t, Part>& parts() const { return parts_; }

 private:
  struct Gap {
    std::uint64_t begin = 0;
    std::uint64_t size_bytes = 0;
  };
  // What is missing between `begin` and `end`, in order.
  [[nodiscard]] std::vector<Gap> GapsIn(std::uint64_t begin, std::uint64_t end) const;

  std::uint64_t left_bytes_;
  std::map<std::uint64_t, Part> parts_;
};

// The CRC-32C of a block as readers saw it that know nothing of each other: `expected` if all saw
// that, else that of one who did not. `parts` are what they read, at least one byte each; nobody
// has these bytes any more. Those that are missing are read by `read`, and so are those in which
// one part ends or begins within another one: a checksum cannot be divided. Errors: those of
// `read`.
using ReadPart = std::function<Status(std::uint64_t begin, MutableByteSpan out)>;
Result<std::uint32_t> ChecksumAsSeen(std::span<const BlockPart> parts, std::uint64_t block_bytes,
                                     std::uint32_t expected, const ReadPart& read);

}  // namespace ckpt

#endif  // CKPT_CORE_MANIFEST_INTERNAL_BLOCK_PARTS_H_
