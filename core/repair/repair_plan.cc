#include "core/repair/repair_plan.h"

#include <map>
#include <string>
#include <utility>

#include "core/base/name_list.h"
#include "core/io/storage.h"

namespace ckpt {
namespace {

// The group of each file, by position. Nothing for a file without a group.
std::vector<std::optional<std::size_t>> GroupsOfFiles(const Manifest& manifest) {
  std::vector<std::optional<std::size_t>> groups(manifest.files.size());
  for (std::size_t g = 0; g < manifest.parity.size(); ++g) {
    groups[*manifest.FindFile(manifest.parity[g].parity_file)] = g;
    for (const std::string& member : manifest.parity[g].members) {
      groups[*manifest.FindFile(member)] = g;
    }
  }
  return groups;
}

// The blocks of one group at the same place in its files.
using Stripe = std::pair<std::size_t, std::uint64_t>;  // group, block
using FilesOfStripe = std::map<Stripe, std::vector<std::size_t>>;

// Names some of the other damaged files that are needed to rebuild a block. Where a group lost all
// of its files, this is said of each of them.
std::string OtherNames(const Manifest& manifest, const std::vector<std::size_t>& lost,
                       std::size_t file) {
  std::vector<std::string> names;
  for (const std::size_t other : lost) {
    if (names.size() == kMostNamed) break;
    if (other != file) names.push_back(manifest.files[other].name);
  }
  return NameSome(names, lost.size() - 1);
}

Problem BeyondRepair(const Manifest& manifest, const DamagedBlock& block,
                     const std::optional<std::size_t>& group,
                     const std::vector<std::size_t>& lost) {
  const ManifestFile& file = manifest.files[block.file];
  const BlockExtent extent = ExtentOfBlock(block.block, file.size_bytes);
  Problem problem;
  problem.kind = block.crc32c ? ErrorKind::kChecksum : ErrorKind::kTruncated;
  problem.file = DescribeRange(file.name, extent.offset_bytes, extent.size_bytes);
  if (!group) {
    problem.message = "no single bit explains the damage, and the checkpoint has no parity";
    problem.hint = "such damage can be repaired in a checkpoint that was written with parity";
  } else {
    problem.message =
        "parity repairs one file of a group, and another one is damaged at the same place";
    problem.actual = OtherNames(manifest, lost, block.file) + " damaged, too";
  }
  return problem;
}

}  // namespace

RepairPlan PlanRepair(const Manifest& manifest, const Damage& damage) {
  const std::vector<std::optional<std::size_t>> group_of = GroupsOfFiles(manifest);
  // Damaged files of each stripe that flipping one bit does not repair.
  FilesOfStripe lost;
  std::vector<bool> has_damaged_block(manifest.files.size());
  for (const DamagedBlock& block : damage.blocks) {
    has_damaged_block[block.file] = true;
    const std::optional<std::size_t> group = group_of[block.file];
    if (group && !block.flip) lost[{*group, block.block}].push_back(block.file);
  }
  RepairPlan plan;
  std::optional<std::size_t> last_hopeless;
  for (const DamagedBlock& block : damage.blocks) {
    if (IsTracker(manifest.files[block.file].name)) continue;
    const std::optional<std::size_t> group = group_of[block.file];
    BlockRepair repair{.file = block.file, .block = block.block, .flip = block.flip};
    if (!block.flip) {
      static const std::vector<std::size_t> none;
      const std::vector<std::size_t>& others = group ? lost.at({*group, block.block}) : none;
      if (others.size() != 1) {
        if (last_hopeless != block.file) {
          plan.beyond_repair.push_back(BeyondRepair(manifest, block, group, others));
        }
        last_hopeless = block.file;
        continue;
      }
      repair.group = group;
    }
    plan.blocks.push_back(repair);
  }
  for (const DamagedFile& file : damage.files) {
    if (IsTracker(manifest.files[file.file].name)) continue;
    if (file.size_bytes > manifest.files[file.file].size_bytes || !has_damaged_block[file.file]) {
      plan.sizes.push_back(file);
    }
  }
  return plan;
}

}  // namespace ckpt
