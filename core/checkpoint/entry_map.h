// Where the entries of a checkpoint's files lie. It helps to explain a file that is too short.
#ifndef CKPT_CORE_CHECKPOINT_ENTRY_MAP_H_
#define CKPT_CORE_CHECKPOINT_ENTRY_MAP_H_

#include <cstdint>
#include <vector>

#include "core/checkpoint/index.h"

namespace ckpt {

// The begins and ends of chunks and objects in every file. Immutable; 16 bytes per entry.
class EntryMap {
 public:
  explicit EntryMap(const CheckpointIndex& index);

  // For a range that reaches past the end of its file: whether the file was probably cut off,
  // rather than the range being wrong. Writers put entries one after the other, so a correct range
  // starts where another entry ends, or at the next aligned place, and no other entry starts inside
  // it.
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
