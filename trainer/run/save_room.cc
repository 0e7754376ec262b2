#include "trainer/run/save_room.h"

#include <algorithm>
#include <cstddef>
#include <limits>

#include <fmt/format.h>

#include "core/base/units.h"
#include "core/io/disk_space.h"

namespace ckpt::train {
namespace {

// The number of saves after which the number of new checkpoints no longer grows.
std::int64_t SavesUntilFull(const SavesAhead& ahead) {
  if (ahead.keep == 0 || ahead.keep == std::numeric_limits<std::int64_t>::max()) return ahead.saves;
  return std::min(ahead.saves, ahead.keep + 1);
}

}  // namespace

std::int64_t CountSaves(std::int64_t iteration, std::int64_t last_step, std::int64_t interval) {
  if (iteration >= last_step) return 0;
  if (interval == 0) return 1;
  const std::int64_t at_multiples = last_step / interval - iteration / interval;
  return at_multiples + (last_step % interval == 0 ? 0 : 1);
}

std::uint64_t BytesAtSave(const SavesAhead& ahead, std::int64_t n) {
  const auto before = static_cast<std::uint64_t>(n - 1);
  const auto keep = static_cast<std::uint64_t>(ahead.keep);
  const std::uint64_t old = ahead.old_bytes.size();
  std::uint64_t new_ones = before;
  std::uint64_t removed = 0;  // how many old checkpoints earlier saves removed
  if (keep > 0 && before > 0) {
    new_ones = std::min(before, keep);
    removed = old - std::min(old, keep - new_ones);
  }
  std::uint64_t bytes = (new_ones + 1) * ahead.checkpoint_bytes;
  for (std::size_t i = 0; i < removed; ++i) bytes -= std::min(bytes, ahead.old_bytes[i]);
  return bytes;
}

std::int64_t SavesThatFit(const SavesAhead& ahead, std::uint64_t free_bytes) {
  const std::int64_t until_full = SavesUntilFull(ahead);
  for (std::int64_t n = 1; n <= until_full; ++n) {
    if (BytesAtSave(ahead, n) > free_bytes) return n - 1;
  }
  return ahead.saves;
}

Status CheckRoomForSaves(const Path& folder, const SavesAhead& ahead, std::uint64_t free_bytes) {
  const std::int64_t fit = SavesThatFit(ahead, free_bytes);
  if (fit == ahead.saves || (ahead.keep == 0 && fit > 0)) return OkStatus();
  std::string hint = fmt::format("free space, or save on another disk: a save takes {}",
                                 FormatByteSize(BytesAtSave(ahead, 1)));
  if (fit > 0) {
    hint += fmt::format(", and keep_checkpoints={} leaves up to {} there beside the new one",
                        ahead.keep, ahead.keep);
  }
  return CheckRoom(folder, BytesAtSave(ahead, fit + 1), free_bytes).Hint(hint);
}

}  // namespace ckpt::train
