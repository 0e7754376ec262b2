// Which memo slots a pickle reads: only those are kept.
#ifndef CKPT_FORMATS_PICKLE_INTERNAL_MEMO_H_
#define CKPT_FORMATS_PICKLE_INTERNAL_MEMO_H_

#include <array>
#include <bit>
#include <cstdint>
#include <functional>
#include <vector>

#include "core/base/bytes.h"
#include "formats/pickle/graph.h"

namespace ckpt::pickle {

// How far a pass over the opcodes goes between two reports of its progress.
inline constexpr std::uint64_t kReportEveryBytes = std::uint64_t{4} << 20;

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
  // The first slot from `slot` on that something reads; past all slots if there is none. Cheap for
  // slots that only grow.
  [[nodiscard]] std::uint64_t NextRead(std::uint64_t slot);

  // REQUIRES: IsRead(slot).
  void Set(std::uint64_t slot, NodeId node) {
    nodes_[Rank(slot)] = node;
    recent_[slot % kRecent] = {slot, node};
  }
  // kNoNode if the slot is not set.
  [[nodiscard]] NodeId Get(std::uint64_t slot) {
    Entry& entry = recent_[slot % kRecent];
    if (entry.slot != slot) {
      if (!IsRead(slot)) return kNoNode;
      entry = {slot, nodes_[Rank(slot)]};
    }
    return entry.node;
  }

 private:
  static constexpr std::size_t kRecent = 512;

  struct Entry {
    std::uint64_t slot = ~0ULL;
    NodeId node = kNoNode;
  };

  // Marks what the opcodes that start in [at, stretch_end) read. Returns the place of the next one,
  // or of one that ends the pickle.
  const std::byte* Scan(const std::byte* at, const std::byte* stretch_end, const std::byte* end);
  void MarkRead(std::uint64_t slot) {
    if (!IsRead(slot)) AddRead(slot);
  }
  void AddRead(std::uint64_t slot);
  // Position in nodes_.
  [[nodiscard]] std::size_t Rank(std::uint64_t slot) const {
    const std::uint64_t below = read_[slot / 64] & ((1ULL << (slot % 64)) - 1);
    return ranks_[slot / 64] + static_cast<std::size_t>(std::popcount(below));
  }

  std::uint64_t max_slot_;
  std::vector<std::uint64_t> read_;   // a bit a slot
  std::vector<std::uint32_t> ranks_;  // read slots before each word
  std::vector<NodeId> nodes_;         // of the read slots
  // A pickle reads the same few slots over and over: what was last known of each remainder.
  std::array<Entry, kRecent> recent_;
  // NextRead's last answer, which holds for all slots from `quiet_from_` on.
  std::uint64_t quiet_from_ = 1;
  std::uint64_t quiet_until_ = 0;
};

}  // namespace ckpt::pickle

#endif  // CKPT_FORMATS_PICKLE_INTERNAL_MEMO_H_
