#include "formats/megatron/root.h"

#include <algorithm>

#include <fmt/format.h>

#include "core/base/quote.h"
#include "core/base/text_number.h"
#include "core/base/trimmed.h"
#include "core/io/staging_name.h"
#include "core/json/json_reader.h"
#include "core/manifest/manifest.h"
#include "formats/megatron/bridge_files.h"
#include "formats/megatron/internal/train_state.h"

namespace ckpt::megatron {
namespace {

constexpr std::string_view kIterationPrefix = "iter_";
constexpr std::string_view kRemovedSuffix = ".ckptkit-removed";

bool IsTrackerText(std::string_view text) {
  const std::string_view word = Trimmed(text);
  if (word == kReleaseDirectory) return true;
  return !word.empty() && word.find_first_not_of("0123456789") == std::string_view::npos;
}

// "release", or 100 for iter_0000100.
std::string TrackerText(std::string_view directory) {
  if (!directory.starts_with(kIterationPrefix)) return std::string(directory);
  const std::size_t digits = directory.find_first_not_of('0', kIterationPrefix.size());
  return std::string(digits == std::string_view::npos ? "0" : directory.substr(digits));
}

bool IsOfRun(std::string_view name) { return name.starts_with(kIterationPrefix); }

}  // namespace

constinit const RunRoot kRunRoot = {.tracker_name = kTrackerName,
                                    .copied_file = kTrainStateFile,
                                    .copy_name = kLatestTrainState,
                                    .weights_directory = kReleaseDirectory,
                                    .run_directory = &IterationName,
                                    .is_tracker_text = &IsTrackerText,
                                    .tracker_text = &TrackerText,
                                    .is_of_run = &IsOfRun};

std::string IterationName(std::int64_t iteration) {
  return fmt::format("{}{:07d}", kIterationPrefix, iteration);
}

std::optional<std::int64_t> NumberAfter(std::string_view prefix, std::string_view name) {
  if (!TakePrefix(prefix, name)) return std::nullopt;
  const std::optional<std::int64_t> number = ParseNumber<std::int64_t>(name);
  return number && *number >= 0 ? number : std::nullopt;
}

std::optional<std::int64_t> IterationOf(std::string_view name) {
  return NumberAfter(kIterationPrefix, name);
}

Result<std::vector<std::int64_t>> ListIterations(Storage& storage, const Path& root) {
  std::vector<std::int64_t> iterations;
  CKPT_ASSIGN_OR_RETURN(const FileStat stat, storage.Stat(root));
  if (stat.type != FileType::kDirectory) return iterations;
  CKPT_ASSIGN_OR_RETURN(const std::vector<DirectoryEntry> entries, storage.List(root));
  for (const DirectoryEntry& entry : entries) {
    if (entry.type != FileType::kDirectory) continue;
    if (const auto iteration = IterationOf(entry.name)) {
      iterations.push_back(*iteration);
    }
  }
  std::ranges::sort(iterations);
  return iterations;
}

namespace {

Result<std::string> ReadLatestTrainState(Storage& storage, const Path& root) {
  const Path path = root / kLatestTrainState.data();
  CKPT_ASSIGN_OR_RETURN(const std::string json, ReadTrainState(storage, path));
  CKPT_ASSIGN_OR_RETURN(const JsonDocument state, JsonDocument::Parse(json, path.string()));
  CKPT_ASSIGN_OR_RETURN(const JsonCursor step, state.root().At(kStep));
  CKPT_ASSIGN_OR_RETURN(const std::int64_t iteration, step.Int64());
  return IterationName(iteration);
}

}  // namespace

Result<std::string> ReadTracker(Storage& storage, const Path& root) {
  const Path path = root / kTrackerName.data();
  CKPT_ASSIGN_OR_RETURN(const FileStat stat, storage.Stat(path));
  if (stat.type == FileType::kMissing) return ReadLatestTrainState(storage, root);
  CKPT_ASSIGN_OR_RETURN(const std::string text, ReadSmallFile(storage, path, kMaxTrackerBytes));
  const std::string_view word = Trimmed(text);
  if (word == kReleaseDirectory) return std::string(word);
  if (const std::optional<std::int64_t> number = NumberAfter("", word)) {
    return IterationName(*number);
  }
  return Error(ErrorKind::kBadMetadata, "the tracker does not name an iteration")
      .File(path.string())
      .Expected("a number or \"release\"")
      .Actual(Quote(word))
      .Hint("ckpt-inspect and ckpt-convert open a checkpoint without it with --iteration N");
}

Status PointTrackerTo(Storage& storage, const Path& root, std::int64_t iteration) {
  CKPT_RETURN_IF_ERROR(
      ReplaceSmallFile(storage, root / kTrackerName.data(), AsBytes(std::to_string(iteration))));
  const Path state = root / IterationName(iteration) / kTrainStateFile.data();
  const Path latest = root / kLatestTrainState.data();
  CKPT_ASSIGN_OR_RETURN(const FileStat has_state, storage.Stat(state));
  if (has_state.type == FileType::kRegular) {
    CKPT_ASSIGN_OR_RETURN(const std::string content,
                          ReadSmallFile(storage, state, kMaxTrainStateBytes));
    return ReplaceSmallFile(storage, latest, AsBytes(content));
  }
  // Megatron-Bridge believes it more than the tracker.
  CKPT_ASSIGN_OR_RETURN(const FileStat has_latest, storage.Stat(latest));
  return has_latest.type == FileType::kMissing ? OkStatus() : storage.RemoveAll(latest);
}

bool IsLeftover(std::string_view name) {
  return name.ends_with(kStagingSuffix) || name.ends_with(kRemovedSuffix);
}

Status HideOldIterations(Storage& storage, const Path& root, const Retention& retention) {
  CKPT_ASSIGN_OR_RETURN(std::vector<std::int64_t> iterations, ListIterations(storage, root));
  std::erase_if(iterations, [&](std::int64_t iteration) {
    return iteration > retention.newest || retention.not_counted.contains(iteration);
  });
  const auto surplus = static_cast<std::int64_t>(iterations.size()) - retention.keep;
  for (std::int64_t i = 0; i < surplus; ++i) {
    const Path old = root / IterationName(iterations[static_cast<std::size_t>(i)]);
    const Path removed(old.string() + std::string(kRemovedSuffix));
    // Left by a run that was interrupted; a run that goes on from before it comes here again.
    CKPT_RETURN_IF_ERROR(storage.RemoveAll(removed));
    CKPT_RETURN_IF_ERROR(storage.Rename(old, removed));
    CKPT_RETURN_IF_ERROR(storage.SyncDirectory(root));
  }
  return OkStatus();
}

Status RemoveHidden(Storage& storage, const Path& root) {
  CKPT_ASSIGN_OR_RETURN(const std::vector<DirectoryEntry> entries, storage.List(root));
  for (const DirectoryEntry& entry : entries) {
    const bool is_hidden =
        entry.name.starts_with(kIterationPrefix) && entry.name.ends_with(kRemovedSuffix);
    if (is_hidden) CKPT_RETURN_IF_ERROR(storage.RemoveAll(root / entry.name));
  }
  return OkStatus();
}

}  // namespace ckpt::megatron
