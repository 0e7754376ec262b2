// Which chunks of a tensor are copies of each other: those of the same box.
#ifndef CKPT_CORE_CHECKPOINT_CHUNK_COPIES_H_
#define CKPT_CORE_CHECKPOINT_CHUNK_COPIES_H_

#include <cstddef>
#include <map>
#include <span>
#include <utility>

#include "core/checkpoint/index.h"

namespace ckpt {

using BoxId = std::pair<DimsId, DimsId>;
[[nodiscard]] inline BoxId BoxIdOf(const Chunk& chunk) { return {chunk.offsets, chunk.sizes}; }

class ChunkCopies {
 public:
  // Number `copy` of the chunks of every box. REQUIRES: `chunks` outlive this.
  ChunkCopies(std::span<const Chunk> chunks, std::size_t copy) {
    if (copy == 0) return;
    std::map<BoxId, std::size_t> counts;
    for (const Chunk& chunk : chunks) {
      if (counts[BoxIdOf(chunk)]++ == copy) copies_[BoxIdOf(chunk)] = &chunk;
    }
  }

  // That of the chunk's box, of which it is the first; itself where there are fewer.
  [[nodiscard]] const Chunk& Of(const Chunk& first) const {
    const auto copy = copies_.find(BoxIdOf(first));
    return copy == copies_.end() ? first : *copy->second;
  }

 private:
  std::map<BoxId, const Chunk*> copies_;
};

}  // namespace ckpt

#endif  // CKPT_CORE_CHECKPOINT_CHUNK_COPIES_H_
