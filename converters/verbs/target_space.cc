#include "converters/verbs/target_space.h"

#include <algorithm>
#include <map>
#include <string_view>
#include <utility>

#include <fmt/format.h>

#include "core/io/disk_space.h"
#include "core/io/staging_name.h"
#include "core/repair/parity.h"

namespace ckpt {

Result<std::vector<ManifestFile>> PlannedFiles(Storage& storage, const WritePlan& plan) {
  std::vector<ManifestFile> files;
  for (const WriteFile& file : plan.files) {
    files.push_back({.name = file.name, .size_bytes = file.size_bytes, .block_crc32c = {}});
  }
  for (const WriteCopy& copy : plan.copies) {
    CKPT_ASSIGN_OR_RETURN(const FileStat stat, storage.Stat(copy.from));
    files.push_back({.name = copy.name, .size_bytes = stat.size_bytes, .block_crc32c = {}});
  }
  return files;
}

std::uint64_t BytesWithParity(const std::vector<ManifestFile>& files, std::size_t parity_group) {
  std::map<std::string_view, std::uint64_t> sizes;
  std::uint64_t bytes = 0;
  for (const ManifestFile& file : files) {
    sizes[file.name] = file.size_bytes;
    bytes += file.size_bytes;
  }
  if (parity_group == 0) return bytes;
  for (const ParityGroup& group : GroupForParity(files, parity_group)) {
    std::uint64_t longest = 0;
    for (const std::string& member : group.members) longest = std::max(longest, sizes.at(member));
    bytes += longest;
  }
  return bytes;
}

Status HowToResume(Status failure, const Path& target, std::uint64_t needed_bytes) {
  if (failure.ok()) return failure;
  const ErrorKind kind = failure.kind();
  const bool is_full = kind == ErrorKind::kNoSpace;
  if (!is_full && kind != ErrorKind::kCancelled) return failure;
  const std::string room = is_full ? MakeRoom("the target", needed_bytes) + " and " : "";
  return std::move(failure).Hint(
      fmt::format("{} holds what is done: {}run ckpt-convert again with --resume to go on, or "
                  "remove it",
                  StagingOf(target).string(), room));
}

}  // namespace ckpt
