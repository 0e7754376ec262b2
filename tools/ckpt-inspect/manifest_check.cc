#include "tools/ckpt-inspect/manifest_check.h"

#include <memory>
#include <string>
#include <utility>

#include "core/checkpoint/byte_owners.h"
#include "core/manifest/manifest.h"
#include "core/manifest/read_manifest.h"
#include "core/manifest/verify_manifest.h"
#include "core/repair/repair_plan.h"
#include "formats/registry/registry.h"

namespace ckpt::inspect {
namespace {

std::string RegionName(UnownedRegion region) {
  switch (region) {
    case UnownedRegion::kHeader:
      return "header";
    case UnownedRegion::kBetween:
      return "between items";
    case UnownedRegion::kTrailer:
      return "trailer";
    case UnownedRegion::kFile:
      return "";  // the file's name says it
  }
  return "";
}

Finding DescribeDamagedBlock(const Manifest& manifest, const DamagedBlock& block,
                             const CheckpointIndex* index, const ByteOwners* owners) {
  const ManifestFile& file = manifest.files[block.file];
  const BlockExtent extent = ExtentOfBlock(block.block, file.size_bytes);
  DamagePlace place{.offset_bytes = extent.offset_bytes, .size_bytes = extent.size_bytes};
  if (block.flip) {
    place.offset_bytes = block.flip->offset_bytes;
    place.size_bytes = 1;
    place.bit = block.flip->bit;
  }
  Problem problem = DescribeBlock(manifest, block);
  if (owners != nullptr) {
    const std::vector<ByteOwner> there =
        owners->Of(file.name, place.offset_bytes, place.size_bytes);
    for (const ByteOwner& owner : there) {
      const bool is_known = !place.keys.empty() && place.keys.back() == owner.key;
      if (!is_known) place.keys.emplace_back(owner.key);
    }
    if (place.keys.size() == 1) problem.tensor = place.keys.front();
    if (there.size() == 1 && there.front().chunk != nullptr) {
      place.chunk = index->box(*there.front().chunk);
    }
    if (there.empty()) place.region = RegionName(owners->RegionOf(file.name, place.offset_bytes));
  }
  return {.problem = std::move(problem), .place = std::move(place)};
}

std::vector<Finding> Describe(const Manifest& manifest, const Damage& damage,
                              const CheckpointIndex* index) {
  std::vector<Finding> findings;
  if (auto tracker = DescribeTracker(manifest, damage.tracker))
    findings.push_back({*std::move(tracker)});
  for (const DamagedFile& file : damage.files) findings.push_back({DescribeFile(manifest, file)});
  std::optional<ByteOwners> owners;
  if (index != nullptr && !damage.blocks.empty()) owners.emplace(*index);
  for (const DamagedBlock& block : damage.blocks) {
    // For a block that does not exist, the file is already reported.
    if (!block.crc32c) continue;
    findings.push_back(DescribeDamagedBlock(manifest, block, index, owners ? &*owners : nullptr));
  }
  for (const std::string& name : damage.leftovers) findings.push_back({DescribeLeftover(name)});
  return findings;
}

// Nothing if there is no manifest.
Result<std::optional<ManifestCheck>> Compare(Storage& storage, const Path& checkpoint,
                                             const CheckpointIndex* index, int threads,
                                             ProgressSink& progress) {
  CKPT_ASSIGN_OR_RETURN(const Path directory, ManifestDirectory(storage, checkpoint));
  const bool is_whole = directory == checkpoint;
  ManifestCheck check;
  std::shared_ptr<const Manifest> manifest;
  if (is_whole) {
    CKPT_ASSIGN_OR_RETURN(std::optional<StoredManifest> stored, FindManifest(storage, directory));
    if (stored) manifest = std::make_shared<const Manifest>(std::move(stored->manifest));
    if (stored && stored->lost) check.findings.push_back({*std::move(stored->lost)});
  } else {
    CKPT_ASSIGN_OR_RETURN(manifest, ReadManifest(storage, checkpoint));
  }
  if (!manifest) return std::optional<ManifestCheck>();
  for (const ManifestFile& file : manifest->files) check.checked_bytes += file.size_bytes;
  progress.OnPhase("compare", check.checked_bytes, manifest->files.size());
  CKPT_ASSIGN_OR_RETURN(Damage damage,
                        FindDamage(storage, directory, *manifest, KnownRunRoot(),
                                   {.threads = threads, .on_progress = [&](std::uint64_t bytes) {
                                      progress.OnDone(kManifestName, bytes);
                                    }}));
  if (!is_whole) damage.leftovers.clear();  // the other files of the directory
  for (Finding& finding : Describe(*manifest, damage, index)) {
    check.findings.push_back(std::move(finding));
  }
  check.is_repairable =
      is_whole && HasErrors(check.findings) && PlanRepair(*manifest, damage).beyond_repair.empty();
  return std::optional<ManifestCheck>(std::move(check));
}

}  // namespace

std::optional<ManifestCheck> CheckManifest(Storage& storage, const Path& checkpoint,
                                           const CheckpointIndex* index, int threads,
                                           ProgressSink& progress) {
  Result<std::optional<ManifestCheck>> compared =
      Compare(storage, checkpoint, index, threads, progress);
  if (compared.ok()) return *std::move(compared);
  ManifestCheck failed;
  for (const Problem& problem : compared.status().problems()) failed.findings.push_back({problem});
  return failed;
}

}  // namespace ckpt::inspect
