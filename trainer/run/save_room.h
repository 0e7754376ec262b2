// Room on the disk for the checkpoints of a run.
#ifndef CKPT_TRAINER_RUN_SAVE_ROOM_H_
#define CKPT_TRAINER_RUN_SAVE_ROOM_H_

#include <cstdint>
#include <vector>

#include "core/base/status.h"
#include "core/io/path.h"

namespace ckpt::train {

// The saves that a run has before it.
struct SavesAhead {
  std::int64_t saves = 0;
  std::int64_t keep = 0;               // checkpoints that stay; 0: all
  std::uint64_t checkpoint_bytes = 0;  // of one
  std::uint64_t passing_bytes = 0;     // that a save takes beside it, and gives back
  std::vector<std::uint64_t>
      old_bytes;  // of those that are there and count for `keep`, oldest first
};

// How often a run saves after `iteration`: at multiples of `interval` (0: at none) and at its end.
[[nodiscard]] std::int64_t CountSaves(std::int64_t iteration, std::int64_t train_iters,
                                      std::int64_t interval);

// Bytes that have to be free when save number `n` (from 1) is at its end, and the old ones that are not kept are gone.
[[nodiscard]] std::uint64_t BytesAtSave(const SavesAhead& ahead, std::int64_t n);

// How many saves find room in `free_bytes`, one after the other; all of them at most.
[[nodiscard]] std::int64_t SavesThatFit(const SavesAhead& ahead, std::uint64_t free_bytes);

// Whether the first save finds room in `free_bytes` below `folder`, and, where retention bounds them, all that are there at
// once. Errors: kNoSpace.
Status CheckRoomForSaves(const Path& folder, const SavesAhead& ahead, std::uint64_t free_bytes);

}  // namespace ckpt::train

#endif  // CKPT_TRAINER_RUN_SAVE_ROOM_H_
