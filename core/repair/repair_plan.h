// What can be repaired in a damaged checkpoint, and how: a pure function of its manifest and the
// damage.
#ifndef CKPT_CORE_REPAIR_REPAIR_PLAN_H_
#define CKPT_CORE_REPAIR_REPAIR_PLAN_H_

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "core/base/status.h"
#include "core/manifest/find_damage.h"
#include "core/manifest/manifest.h"

namespace ckpt {

// A damaged block, and the source of its right bytes.
struct BlockRepair {
  std::size_t file = 0;  // position in Manifest::files
  std::uint64_t block = 0;
  // The bit to flip back, counted from the start of the file.
  std::optional<FlippedBit> flip = {};
  // If no bit: the group whose other files give the block, as a position in Manifest::parity.
  std::optional<std::size_t> group = {};

  friend bool operator==(const BlockRepair&, const BlockRepair&) = default;
};

struct RepairPlan {
  std::vector<BlockRepair> blocks;     // sorted by file and block
  std::vector<DamagedFile> sizes;      // files where only the length is wrong
  std::vector<Problem> beyond_repair;  // damage that cannot be repaired, once per file
};

// A block is repaired by flipping one bit if that explains its checksums, else from its group if no
// other file of the group lacks the same block. The tracker is left out: it is not a file of
// the directory.
[[nodiscard]] RepairPlan PlanRepair(const Manifest& manifest, const Damage& damage);

}  // namespace ckpt

#endif  // CKPT_CORE_REPAIR_REPAIR_PLAN_H_
