// Which tensors and objects lie in a range of a file's bytes.
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

// Where bytes lie that no entry has.
enum class UnownedRegion : std::uint8_t {
  kHeader,   // before the first entry
  kBetween,  // padding, framing
  kTrailer,  // behind the last entry
  kFile,     // the file has no entries: metadata, a side file
};

// Immutable; 40 bytes an entry.
class ByteOwners {
 public:
  // REQUIRES: `index` outlives this and what it returns.
  explicit ByteOwners(const CheckpointIndex& index);

  // Entries that share a byte with [offset, offset + length) of `file`, in order of where they begin.
  [[nodiscard]] std::vector<ByteOwner> Of(std::string_view file, std::uint64_t offset_bytes,
                                          std::uint64_t size_bytes) const;
  // REQUIRES: no entry has the byte.
  [[nodiscard]] UnownedRegion RegionOf(std::string_view file, std::uint64_t offset_bytes) const;

 private:
  struct Entry {
    std::uint64_t begin = 0;
    std::uint64_t end = 0;
    std::uint64_t reach = 0;  // the largest end of this entry and those before it
    ByteOwner owner;
  };
  std::map<std::string, std::vector<Entry>, std::less<>> files_;  // entries in order of `begin`
};

}  // namespace ckpt

#endif  // CKPT_CORE_CHECKPOINT_BYTE_OWNERS_H_
