// Finds which tensors and objects own a range of a file's bytes.
#ifndef CKPT_CORE_CHECKPOINT_BYTE_OWNERS_H_
#define CKPT_CORE_CHECKPOINT_BYTE_OWNERS_H_

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "core/checkpoint/index.h"

namespace ckpt {

// An entry of the index.
struct ByteOwner {
  std::string_view key;
  const Chunk* chunk = nullptr;  // nullptr: an object
};

// The place of bytes that belong to no entry.
enum class UnownedRegion : std::uint8_t {
  kHeader,   // before the first entry
  kBetween,  // padding, framing
  kTrailer,  // after the last entry
  kFile,     // the file has no entries: metadata, a side file
};

// Immutable; 40 bytes an entry.
class ByteOwners {
 public:
  // REQUIRES: `index` outlives this and what it returns.
  explicit ByteOwners(const CheckpointIndex& index);

  // Entries that share a byte with [offset, offset + length) of `file`, sorted by where they begin.
  [[nodiscard]] std::vector<ByteOwner> Of(std::string_view file, std::uint64_t offset_bytes,
                                          std::uint64_t size_bytes) const;
  // REQUIRES: the byte belongs to no entry.
  [[nodiscard]] UnownedRegion RegionOf(std::string_view file, std::uint64_t offset_bytes) const;

 private:
  struct Entry {
    std::uint64_t begin = 0;
    std::uint64_t end = 0;
    std::uint64_t reach = 0;  // the largest end of this entry and those before it
    ByteOwner owner;
  };
  std::map<std::string, std::vector<Entry>, std::less<>> files_;  // entries sorted by `begin`
};

}  // namespace ckpt

#endif  // CKPT_CORE_CHECKPOINT_BYTE_OWNERS_H_
