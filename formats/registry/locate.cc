#include "formats/registry/locate.h"

#include <algorithm>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "core/base/quote.h"
#include "core/base/trimmed.h"
#include "formats/megatron/bridge_files.h"
#include "formats/megatron/root.h"
#include "formats/safetensors/header.h"
#include "formats/safetensors/sharded_index.h"
#include "formats/torch_save/torch_repository.h"

namespace ckpt {
namespace {

constexpr std::uint64_t kMaxRevisionBytes = 4096;

bool Contains(const std::vector<DirectoryEntry>& entries, std::string_view name) {
  return std::any_of(entries.begin(), entries.end(),
                     [&](const DirectoryEntry& entry) { return entry.name == name; });
}

CheckpointLocation InDirectory(const Path& directory) {
  CheckpointLocation location{.path = directory, .is_directory = true};
  // "run/step-4/" has an empty last component.
  const Path named = directory.filename() == "." ? directory.parent_path() : directory;
  const std::string name = named.filename().string();
  location.iteration = megatron::IterationOf(name);
  if (!location.iteration) location.iteration = megatron::NumberAfter("step-", name);
  location.is_release = name == megatron::kReleaseDirectory;
  return location;
}

// The directory `root / name`. `who_says` is the file that names it, for messages.
Result<CheckpointLocation> InNamedDirectory(Storage& storage, const Path& root,
                                            const std::string& name, std::string_view who_says) {
  const Path directory = root / name;
  CKPT_ASSIGN_OR_RETURN(const FileStat stat, storage.Stat(directory));
  if (stat.type != FileType::kDirectory) {
    return Error(ErrorKind::kNotFound,
                 fmt::format("{} names a directory that is not there", who_says))
        .File(directory.string());
  }
  return InDirectory(directory);
}

// torchtitan makes the folder first, and last the file that lists what is in it, or the only file.
// Without that the save was not completed.
Result<bool> IsComplete(Storage& storage, const Path& directory) {
  for (const std::string_view name : {std::string_view(".metadata"), safetensors::kIndexFileName}) {
    CKPT_ASSIGN_OR_RETURN(const FileStat stat, storage.Stat(directory / name.data()));
    if (stat.type == FileType::kRegular) return true;
  }
  const Path only = directory / safetensors::kSingleFileName.data();
  CKPT_ASSIGN_OR_RETURN(const FileStat stat, storage.Stat(only));
  if (stat.type != FileType::kRegular) return false;
  CKPT_ASSIGN_OR_RETURN(const std::shared_ptr<const ReadableFile> file, storage.Open(only));
  const Status header = safetensors::ReadHeader(*file).status();
  if (header.ok()) return true;
  // Another error than that of a cut-off file is told by the reader.
  if (IsUnread(header.kind())) return header;
  return header.kind() != ErrorKind::kTruncated;
}

Result<CheckpointLocation> NewestStep(Storage& storage, const Path& root,
                                      std::vector<std::int64_t> steps) {
  std::sort(steps.rbegin(), steps.rend());
  for (const std::int64_t step : steps) {
    const Path directory = root / fmt::format("step-{}", step);
    CKPT_ASSIGN_OR_RETURN(const bool is_complete, IsComplete(storage, directory));
    if (is_complete) return InDirectory(directory);
  }
  return Error(ErrorKind::kIncomplete, "none of the step folders holds a finished save")
      .File(root.string())
      .Expected(
          ".metadata, model.safetensors.index.json or a whole model.safetensors in one of them");
}

// models--ORGANISATION--NAME/{blobs,refs,snapshots}, as huggingface_hub lays it out.
bool IsHubCache(const std::vector<DirectoryEntry>& entries) {
  return Contains(entries, "snapshots") &&
         (Contains(entries, "refs") || Contains(entries, "blobs"));
}

// The snapshot of the hub's main branch when it was fetched last.
Result<CheckpointLocation> FollowMainRevision(Storage& storage, const Path& root) {
  const Path main = root / "refs" / "main";
  const Path snapshots = root / "snapshots";
  CKPT_ASSIGN_OR_RETURN(const FileStat stat, storage.Stat(main));
  if (stat.type == FileType::kRegular) {
    CKPT_ASSIGN_OR_RETURN(const std::string text, ReadSmallFile(storage, main, kMaxRevisionBytes));
    const std::string revision(Trimmed(text));
    if (revision.empty() || revision.starts_with('.') || revision.find('/') != std::string::npos) {
      return Error(ErrorKind::kBadMetadata, "refs/main does not name a snapshot")
          .File(main.string())
          .Expected("the name of a commit")
          .Actual(Quote(revision));
    }
    return InNamedDirectory(storage, snapshots, revision, "refs/main");
  }
  CKPT_ASSIGN_OR_RETURN(const std::vector<DirectoryEntry> entries, storage.List(snapshots));
  std::vector<std::string> names;
  for (const DirectoryEntry& entry : entries) {
    if (entry.type == FileType::kDirectory) names.push_back(entry.name);
  }
  if (names.size() == 1) return InDirectory(snapshots / names.front());
  if (names.empty()) {
    return Error(ErrorKind::kNotFound, "the hub's cache holds no snapshot of the model")
        .File(snapshots.string());
  }
  return Error(ErrorKind::kUsage, "the hub's cache holds several snapshots of the model")
      .File(snapshots.string())
      .Expected("refs/main to name one of them")
      .Actual(fmt::format("{}", fmt::join(names, ", ")))
      .Hint("give the path of one of them");
}

Result<CheckpointLocation> LocateInDirectory(Storage& storage, const Path& directory,
                                             std::optional<std::int64_t> iteration) {
  CKPT_ASSIGN_OR_RETURN(const std::vector<DirectoryEntry> entries, storage.List(directory));
  std::vector<std::int64_t> steps;
  bool has_iterations = false;
  bool has_steps_of_verl = false;  // whose tracker has Megatron's name
  for (const DirectoryEntry& entry : entries) {
    if (entry.type != FileType::kDirectory) continue;
    has_steps_of_verl = has_steps_of_verl || megatron::NumberAfter("global_step_", entry.name);
    if (const auto step = megatron::NumberAfter("step-", entry.name)) steps.push_back(*step);
    has_iterations = has_iterations || megatron::IterationOf(entry.name);
  }
  const bool has_tracker =
      Contains(entries, megatron::kTrackerName) || Contains(entries, megatron::kLatestTrainState);
  if (iteration) {
    if (has_tracker || has_iterations) {
      return InNamedDirectory(storage, directory, megatron::IterationName(*iteration),
                              "--iteration");
    }
    if (!steps.empty()) {
      return InNamedDirectory(storage, directory, fmt::format("step-{}", *iteration),
                              "--iteration");
    }
    return Error(ErrorKind::kUsage,
                 "--iteration chooses among iter_* or step-* folders; none is here")
        .File(directory.string());
  }
  // If the directory itself is a checkpoint, it is taken, whatever else it contains.
  if (Contains(entries, ".metadata") || Contains(entries, "metadata.json")) {
    return InDirectory(directory);
  }
  if (has_tracker && (has_iterations || !has_steps_of_verl)) {
    CKPT_ASSIGN_OR_RETURN(const std::string name, megatron::ReadTracker(storage, directory));
    return InNamedDirectory(storage, directory, name, megatron::kTrackerName);
  }
  if (IsHubCache(entries)) return FollowMainRevision(storage, directory);
  if (!steps.empty()) return NewestStep(storage, directory, std::move(steps));
  if (has_iterations) {
    return Error(ErrorKind::kIncomplete,
                 fmt::format("iter_* folders without {}", megatron::kTrackerName))
        .File(directory.string())
        .Hint("ckpt-inspect and ckpt-convert open one of them with --iteration N");
  }
  return InDirectory(directory);
}

bool StandsForItsDirectory(std::string_view name) {
  return name == ".metadata" || name.ends_with(safetensors::kIndexSuffix) ||
         name == torch_save::kTorchIndexName;
}

}  // namespace

Result<CheckpointLocation> LocateCheckpoint(Storage& storage, const Path& path,
                                            std::optional<std::int64_t> iteration) {
  if (path.empty()) return Error(ErrorKind::kUsage, "the checkpoint's name is empty");
  CKPT_ASSIGN_OR_RETURN(const FileStat stat, storage.Stat(path));
  switch (stat.type) {
    case FileType::kMissing:
      return Error(ErrorKind::kNotFound, "no such file or directory").File(path.string());
    case FileType::kOther:
      return Error(ErrorKind::kIo, "neither a regular file nor a directory").File(path.string());
    case FileType::kDirectory:
      return LocateInDirectory(storage, path, iteration);
    case FileType::kRegular:
      break;
  }
  if (iteration) {
    return Error(ErrorKind::kUsage, "--iteration needs a directory").File(path.string());
  }
  if (StandsForItsDirectory(path.filename().string())) {
    return InDirectory(path.has_parent_path() ? path.parent_path() : Path("."));
  }
  return CheckpointLocation{.path = path};
}

}  // namespace ckpt
