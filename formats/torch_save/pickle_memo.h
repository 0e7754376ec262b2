// Which memo slots a pickle ever reads: only those are worth keeping.
#ifndef CKPT_FORMATS_TORCH_SAVE_PICKLE_MEMO_H_
#define CKPT_FORMATS_TORCH_SAVE_PICKLE_MEMO_H_

#include <bit>
#include <cstdint>
#include <functional>
#include <vector>

#include "core/base/bytes.h"
#include "formats/torch_save/pickle_graph.h"

namespace ckpt::pickle {

// A pickler memoizes every object and reads back a few: of the 15 million slots of a large
// `.metadata`, some tens of thousands. This is found by a first pass over the opcodes, so that the
// second can let go of everything else.
class Memo {
 public:
  // Looks at the pickle that starts at `start`. Stops silently where it cannot be understood:
  // executing it will say why.
  Memo(ByteSpan bytes, std::uint64_t start, const std::function<void(std::uint64_t)>& consumed);

  // Whether anything reads this slot.
  [[nodiscard]] bool IsRead(std::uint64_t slot) const {
    return slot / 64 < read_.size() && ((read_[slot / 64] >> (slot % 64)) & 1) != 0;
  }
  // REQUIRES of both: IsRead(slot).
  void Set(std::uint64_t slot, NodeId node) { nodes_[Rank(slot)] = node; }
  [[nodiscard]] NodeId Get(std::uint64_t slot) const { return nodes_[Rank(slot)]; }

 private:
  static constexpr std::uint64_t kDirectSlots = 256;

  void MarkRead(std::uint64_t slot);
  // Position in nodes_: the first slots, which are read most, stand there by number.
  [[nodiscard]] std::size_t Rank(std::uint64_t slot) const {
    if (slot < kDirectSlots) return slot;
    const std::uint64_t below = read_[slot / 64] & ((1ULL << (slot % 64)) - 1);
    return kDirectSlots + ranks_[slot / 64] + static_cast<std::size_t>(std::popcount(below));
  }

  std::uint64_t max_slot_;
  std::vector<std::uint64_t> read_;   // a bit a slot
  std::vector<std::uint32_t> ranks_;  // read slots before each word
  std::vector<NodeId> nodes_;         // of the read slots
};

}  // namespace ckpt::pickle

#endif  // CKPT_FORMATS_TORCH_SAVE_PICKLE_MEMO_H_
