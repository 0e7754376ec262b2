// What can be mended of a damaged checkpoint, and how: a pure function of its manifest and the damage.
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

// A damaged block, and what gives its bytes back.
struct BlockMend {
  std::size_t file = 0;  // position in Manifest::files
  std::uint64_t block = 0;
  // Flipping this bit back, counted from the start of the file.
  std::optional<FlippedBit> flip = {};
  // Else the group whose other files give the block; a position in Manifest::parity.
  std::optional<std::size_t> group = {};

  friend bool operator==(const BlockMend&, const BlockMend&) = default;
};

struct RepairPlan {
  std::vector<BlockMend> blocks;       // in order of file and block
  std::vector<DamagedFile> sizes;      // files whose length alone is wrong
  std::vector<Problem> beyond_repair;  // damage that nothing mends, each file once
};

// A block is mended by one flipped bit if that explains its checksums, else from its group if no other
// file of it lacks the same block. The tracker is left out: it is no file of the directory.
[[nodiscard]] RepairPlan PlanRepair(const Manifest& manifest, const Damage& damage);

}  // namespace ckpt

#endif  // CKPT_CORE_REPAIR_REPAIR_PLAN_H_
