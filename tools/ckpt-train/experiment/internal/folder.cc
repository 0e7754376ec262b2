#include "tools/ckpt-train/experiment/internal/folder.h"

#include <algorithm>
#include <array>
#include <vector>

#include "core/base/quote.h"

namespace ckpt::train {
namespace {

// Tells a folder of ours. Written first, removed never.
constexpr std::string_view kMarker = "ckptkit-experiment.txt";
constexpr std::string_view kMarkerText =
    "Results of `ckpt-train experiment reshard`. The next experiment in this folder replaces "
    "them.\n";
constexpr std::array<std::string_view, 6> kOurs = {"checkpoints", "curves.svg",  "data.jsonl",
                                                   "metrics",     "report.json", "report.md"};

// Errors: kAlreadyExists.
Status CheckIsOurs(const Path& path, const std::vector<DirectoryEntry>& entries) {
  if (entries.empty()) return OkStatus();
  const auto refuse = [&](const std::string& why) {
    return Error(ErrorKind::kAlreadyExists, "the folder holds something else: " + why)
        .File(path.string())
        .Hint("name a new folder with -o DIR");
  };
  const bool is_marked = std::any_of(entries.begin(), entries.end(), [](const DirectoryEntry& e) {
    return e.name == kMarker && e.type == FileType::kRegular;
  });
  if (!is_marked) return refuse("no experiment left it");
  for (const DirectoryEntry& entry : entries) {
    const bool is_ours = std::find(kOurs.begin(), kOurs.end(), entry.name) != kOurs.end();
    if (entry.name != kMarker && (!is_ours || entry.is_link)) return refuse(Quote(entry.name));
  }
  return OkStatus();
}

}  // namespace

Result<ExperimentFolder> ExperimentFolder::Open(Storage& storage, const Path& path) {
  CKPT_ASSIGN_OR_RETURN(const FileStat stat, storage.Stat(path));
  if (stat.type != FileType::kMissing && stat.type != FileType::kDirectory) {
    return Error(ErrorKind::kAlreadyExists, "a file is where the folder would be")
        .File(path.string());
  }
  if (stat.type == FileType::kDirectory) {
    CKPT_ASSIGN_OR_RETURN(const std::vector<DirectoryEntry> entries, storage.List(path));
    CKPT_RETURN_IF_ERROR(CheckIsOurs(path, entries));
    for (const DirectoryEntry& entry : entries) {
      if (entry.name != kMarker) CKPT_RETURN_IF_ERROR(storage.RemoveAll(path / entry.name));
    }
  }
  CKPT_RETURN_IF_ERROR(storage.MakeDirectories(path));
  ExperimentFolder folder(storage, path);
  CKPT_RETURN_IF_ERROR(folder.Write(path / std::string(kMarker), kMarkerText));
  CKPT_RETURN_IF_ERROR(storage.MakeDirectories(path / "metrics"));
  return folder;
}

Status ExperimentFolder::Write(const Path& file, std::string_view content) {
  return ReplaceSmallFile(*storage_, file, AsBytes(content));
}

Status ExperimentFolder::RemoveCheckpoints() { return storage_->RemoveAll(path_ / "checkpoints"); }

}  // namespace ckpt::train
