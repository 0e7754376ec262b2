#include "core/manifest/replaceable.h"

#include <algorithm>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "core/manifest/manifest.h"
#include "core/manifest/read_manifest.h"

namespace ckpt {
namespace {

constexpr std::size_t kMaxNamed = 5;

// A place below a directory where a manifest of ours may lie.
struct Covered {
  std::string prefix;                // of the names in it
  std::optional<Manifest> manifest;  // nothing: it is damaged
};

Result<std::vector<Covered>> FindCovered(Storage& storage, const Path& directory,
                                         const RunRoot& root) {
  std::vector<Covered> found;
  for (const std::string& prefix : {std::string(), std::string(root.weights_directory) + "/"}) {
    Result<std::optional<StoredManifest>> stored = FindManifest(storage, directory / prefix);
    if (!stored.ok()) {
      const ErrorKind kind = stored.status().kind();
      if (IsOfSystem(kind)) return std::move(stored).status();
      // Parity files alone do not say which other files are ours.
      if (kind != ErrorKind::kMissingFile) found.push_back({prefix, std::nullopt});
    } else if (*stored) {
      found.push_back({prefix, std::move((*stored)->manifest)});
    }
  }
  // What a conversion made of a run. A run's own checkpoints have no origin.
  CKPT_ASSIGN_OR_RETURN(const std::vector<DirectoryEntry> entries, storage.List(directory));
  for (const DirectoryEntry& entry : entries) {
    if (entry.type != FileType::kDirectory || !root.is_of_run(entry.name)) continue;
    Result<std::optional<StoredManifest>> stored = FindManifest(storage, directory / entry.name);
    if (!stored.ok()) {
      if (IsOfSystem(stored.status().kind())) return std::move(stored).status();
    } else if (*stored && (*stored)->manifest.origin) {
      found.push_back({entry.name + "/", std::move((*stored)->manifest)});
    }
  }
  return found;
}

// Whether a manifest names this file of the directory, or the file is such a manifest.
bool IsCovered(const std::vector<Covered>& covered, const RunRoot& root, const std::string& name) {
  return std::ranges::any_of(covered, [&](const Covered& place) {
    const bool is_tracker =
        name == root.tracker_name || (!root.copy_name.empty() && name == root.copy_name);
    if (!place.prefix.empty() && is_tracker) return true;
    if (!name.starts_with(place.prefix)) return false;
    const std::string inside = name.substr(place.prefix.size());
    if (inside == kManifestName || inside == kManifestCopyName) return true;
    return place.manifest ? place.manifest->FindFile(inside).has_value() : !root.is_of_run(name);
  });
}

std::string ListNames(const std::vector<std::string>& names) {
  std::string list;
  for (std::size_t i = 0; i < names.size() && i < kMaxNamed; ++i) {
    list += (i == 0 ? "" : ", ") + names[i];
  }
  return names.size() > kMaxNamed ? list + ", ..." : list;
}

}  // namespace

Status CheckReplaceable(Storage& storage, const Path& directory, const RunRoot& root) {
  CKPT_ASSIGN_OR_RETURN(const std::vector<Covered> covered, FindCovered(storage, directory, root));
  CKPT_ASSIGN_OR_RETURN(std::vector<std::string> foreign, ListRecursively(storage, directory));
  std::erase_if(foreign, [&](const std::string& name) { return IsCovered(covered, root, name); });
  if (foreign.empty()) return OkStatus();
  return Error(ErrorKind::kAlreadyExists, "the target holds files that these tools did not write")
      .File(directory.string())
      .Actual(ListNames(foreign))
      .Hint("remove it yourself if it is not needed");
}

}  // namespace ckpt
