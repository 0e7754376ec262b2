// Where the entries of a checkpoint's files lie, and what that says about a file that is too short.
#ifndef CKPT_CORE_CHECKPOINT_ENTRY_MAP_H_
#define CKPT_CORE_CHECKPOINT_ENTRY_MAP_H_

#include <cstdint>
#include <vector>

#include "core/checkpoint/index.h"

namespace ckpt {

// Chunks and objects of every file, by where they begin and end. Immutable; 16 bytes an entry.
class EntryMap {
 public:
  explicit EntryMap(const CheckpointIndex& index);

  // Whether a file that ends before [offset, offset + size) was cut off, rather than the range being
  // wrong: writers put entries one behind the other, so an honest range starts where another one
  // ends, or at the next aligned place, and holds the start of none.
  [[nodiscard]] bool LooksCutOff(FileId file, std::uint64_t offset_bytes,
                                 std::uint64_t size_bytes) const;

 private:
  struct OfFile {
    std::vector<std::uint64_t> begins;  // ascending, as are the ends
    std::vector<std::uint64_t> ends;
  };
  std::vector<OfFile> files_;  // by FileId
};

}  // namespace ckpt

#endif  // CKPT_CORE_CHECKPOINT_ENTRY_MAP_H_
