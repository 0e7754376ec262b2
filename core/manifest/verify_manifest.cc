#include "core/manifest/verify_manifest.h"

#include <set>
#include <span>
#include <utility>

#include <fmt/format.h>

#include "core/base/check.h"
#include "core/base/hash.h"
#include "core/base/warning.h"

namespace ckpt {

Problem DescribeFile(const Manifest& manifest, const DamagedFile& found) {
  const ManifestFile& file = manifest.files[found.file];
  if (!found.size_bytes) {
    return Error(ErrorKind::kMissingFile, "a file of the checkpoint is missing")
        .File(file.name)
        .first();
  }
  const bool shorter = *found.size_bytes < file.size_bytes;
  return Error(
             shorter ? ErrorKind::kTruncated : ErrorKind::kSizeMismatch,
             shorter ? "file is shorter than it was written" : "file is longer than it was written")
      .File(file.name)
      .Expected(fmt::format("{} bytes", file.size_bytes))
      .Actual(fmt::format("{} bytes", *found.size_bytes))
      .first();
}

Problem DescribeBlock(const Manifest& manifest, const DamagedBlock& found) {
  const ManifestFile& file = manifest.files[found.file];
  const BlockExtent extent = ExtentOfBlock(found.block, file.size_bytes);
  return Error(ErrorKind::kChecksum, found.flip
                                         ? fmt::format("bit {} of byte {} is flipped",
                                                       found.flip->bit, found.flip->offset_bytes)
                                         : "block differs from what was written")
      .File(DescribeRange(file.name, extent.offset_bytes, extent.size_bytes))
      .Expected("crc32c " + Hex32(file.block_crc32c[found.block]))
      .Actual("crc32c " + Hex32(*found.crc32c))
      .first();
}

std::optional<Problem> DescribeTracker(const Manifest& manifest, TrackerState state) {
  const std::optional<std::size_t> tracker = manifest.FindTracker();
  const std::string name = tracker ? manifest.files[*tracker].name : std::string();
  switch (state) {
    case TrackerState::kAsWritten:
      return std::nullopt;
    case TrackerState::kMissing:
      return Warning(ErrorKind::kValueMismatch, "no tracker beside the checkpoint names it", name);
    case TrackerState::kRewritten:
      return Warning(ErrorKind::kValueMismatch, "the tracker was rewritten since", name);
  }
  return std::nullopt;
}

Problem DescribeLeftover(const std::string& name) {
  return Warning(ErrorKind::kLeftover, "the manifest does not know the file", name);
}

std::function<bool(std::string_view)> HeldBy(const CheckpointIndex& index) {
  const std::span<const std::string> files = index.files();
  return [names = std::set<std::string_view>(files.begin(), files.end())](std::string_view file) {
    return names.contains(file);
  };
}

Result<std::vector<Problem>> VerifyManifest(Storage& storage, const Path& directory,
                                            const Manifest& manifest, const RunRoot& root,
                                            const VerifyOptions& options) {
  CKPT_CHECK(!options.unreadable_is_damage);
  CKPT_ASSIGN_OR_RETURN(const Damage damage,
                        FindDamage(storage, directory, manifest, root, options));
  std::vector<Problem> problems;
  if (auto tracker = DescribeTracker(manifest, damage.tracker))
    problems.push_back(*std::move(tracker));
  for (const DamagedFile& file : damage.files) problems.push_back(DescribeFile(manifest, file));
  for (const DamagedBlock& block : damage.blocks) {
    // For a block that does not exist, the file is already reported.
    if (block.crc32c) problems.push_back(DescribeBlock(manifest, block));
  }
  for (const std::string& name : damage.leftovers) problems.push_back(DescribeLeftover(name));
  return problems;
}

}  // namespace ckpt
