#include "core/manifest/internal/manifest_rules.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include <fmt/format.h>

#include "core/base/checked_math.h"
#include "core/base/quote.h"
#include "core/base/result.h"
#include "core/io/path.h"

namespace ckpt {
namespace {

// The text that names a checkpoint, and a file of that checkpoint once more (RunRoot::copied_file).
constexpr int kMostTrackers = 2;

// Names are relative and sorted, so none occurs twice.
Status CheckNames(const Manifest& manifest) {
  int num_trackers = 0;
  for (std::size_t i = 0; i < manifest.files.size(); ++i) {
    const std::string& name = manifest.files[i].name;
    const std::string inside = IsTracker(name) ? name.substr(kOutside.size()) : name;
    CKPT_RETURN_IF_ERROR(JoinInside(Path("."), inside).status());
    num_trackers += IsTracker(name) ? 1 : 0;
    if (num_trackers > kMostTrackers) {
      return Error(ErrorKind::kBadMetadata, "there are more trackers than a root has")
          .Actual(Quote(name));
    }
    if (i > 0 && !(manifest.files[i - 1].name < name)) {
      return Error(ErrorKind::kBadMetadata, "file names are not in order").Actual(Quote(name));
    }
  }
  for (std::size_t i = 1; i < manifest.tensors.size(); ++i) {
    if (!(manifest.tensors[i - 1].key < manifest.tensors[i].key)) {
      return Error(ErrorKind::kBadMetadata, "tensor keys are not in order")
          .Tensor(manifest.tensors[i].key);
    }
  }
  return OkStatus();
}

// Every file is in at most one group and has one role in it. Every parity file is as long as its
// longest member.
Status CheckParity(const Manifest& manifest) {
  std::vector<bool> has_role(manifest.files.size(), false);
  const auto take = [&](const std::string& name) -> Result<std::uint64_t> {
    const std::optional<std::size_t> file = manifest.FindFile(name);
    if (!file || IsTracker(name)) {
      return Error(ErrorKind::kBadMetadata, "a parity group names a file that cannot be in one")
          .Actual(Quote(name));
    }
    if (has_role[*file]) {
      return Error(ErrorKind::kBadMetadata, "a file is in two parity groups").Actual(Quote(name));
    }
    has_role[*file] = true;
    return manifest.files[*file].size_bytes;
  };
  for (const ParityGroup& group : manifest.parity) {
    CKPT_ASSIGN_OR_RETURN(const std::uint64_t size_bytes, take(group.parity_file));
    std::uint64_t longest = 0;
    for (const std::string& member : group.members) {
      CKPT_ASSIGN_OR_RETURN(const std::uint64_t member_bytes, take(member));
      longest = std::max(longest, member_bytes);
    }
    if (longest == size_bytes) continue;
    return Error(ErrorKind::kBadMetadata, "a parity file is not as long as its longest member")
        .Expected(fmt::format("{} bytes", longest))
        .Actual(fmt::format("{}: {} bytes", Quote(group.parity_file), size_bytes));
  }
  return OkStatus();
}

}  // namespace

bool HasAllChecksums(const ManifestFile& file) {
  const std::uint64_t num_blocks = CeilDiv(file.size_bytes, kManifestBlockBytes);
  return file.block_crc32c.size() == num_blocks &&
         (file.block_crc32.empty() || file.block_crc32.size() == num_blocks);
}

Status CheckManifest(const Manifest& manifest) {
  CKPT_RETURN_IF_ERROR(CheckNames(manifest));
  return CheckParity(manifest);
}

}  // namespace ckpt
