// Space on the disk for the checkpoints of a run.
#ifndef CKPT_TRAINER_RUN_SAVE_ROOM_H_
#define CKPT_TRAINER_RUN_SAVE_ROOM_H_

#include <cstdint>
#include <vector>

#include "core/base/status.h"
#include "core/io/path.h"

namespace ckpt::train {

// The saves that are still to come in a run.
struct SavesAhead {
  std::int64_t saves = 0;
  std::int64_t keep = 0;               // checkpoints to keep; 0: all
  std::uint64_t checkpoint_bytes = 0;  // per checkpoint
  // Bytes of the existing checkpoints that count for `keep`, oldest first.
  std::vector<std::uint64_t> old_bytes;
};

// How often a run saves after `iteration`: at multiples of `interval` (0: never) and at its end,
// which is `last_step`.
[[nodiscard]] std::int64_t CountSaves(std::int64_t iteration, std::int64_t last_step,
                                      std::int64_t interval);

// The bytes that must be free at the end of save number `n` (from 1), after old checkpoints that
// are not kept were removed.
[[nodiscard]] std::uint64_t BytesAtSave(const SavesAhead& ahead, std::int64_t n);

// How many saves, one after another, fit into `free_bytes`; at most all of them.
[[nodiscard]] std::int64_t SavesThatFit(const SavesAhead& ahead, std::uint64_t free_bytes);

// Checks that the first save fits into `free_bytes` below `folder` and, if `keep` limits the number
// of checkpoints, that the largest number of them fits too. Errors: kNoSpace.
Status CheckRoomForSaves(const Path& folder, const SavesAhead& ahead, std::uint64_t free_bytes);

}  // namespace ckpt::train

#endif  // CKPT_TRAINER_RUN_SAVE_ROOM_H_
