#include "trainer/run/internal/stored_run.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <utility>

#include <fmt/format.h>

#include "converters/config/hf_config.h"
#include "core/manifest/read_manifest.h"
#include "core/manifest/verify_manifest.h"
#include "formats/megatron/root.h"
#include "formats/registry/locate.h"
#include "formats/registry/registry.h"
#include "formats/registry/stored_run.h"

namespace ckpt::train {

Result<std::vector<Path>> ListCandidates(Storage& storage, const Path& root) {
  CKPT_ASSIGN_OR_RETURN(std::vector<std::int64_t> iterations,
                        megatron::ListIterations(storage, root));
  std::vector<Path> candidates;
  for (auto it = iterations.rbegin(); it != iterations.rend(); ++it) {
    candidates.push_back(root / megatron::IterationName(*it));
  }
  if (!candidates.empty()) return candidates;
  CKPT_ASSIGN_OR_RETURN(const FileStat stat, storage.Stat(root));
  if (stat.type == FileType::kMissing) return candidates;
  if (stat.type == FileType::kDirectory) {
    CKPT_ASSIGN_OR_RETURN(const std::vector<DirectoryEntry> entries, storage.List(root));
    const auto is_leftover = [](const DirectoryEntry& entry) {
      return megatron::IsLeftover(entry.name);
    };
    if (std::ranges::all_of(entries, is_leftover)) return candidates;
  }
  CKPT_ASSIGN_OR_RETURN(const CheckpointLocation location,
                        LocateCheckpoint(storage, root, std::nullopt));
  candidates.push_back(location.path);
  return candidates;
}

Status CheckStoredBytes(Storage& storage, const Path& checkpoint, const Manifest& manifest,
                        const CheckpointIndex* index, int part, int parts) {
  Manifest share;
  for (auto f = static_cast<std::size_t>(part); f < manifest.files.size();
       f += static_cast<std::size_t>(parts)) {
    share.files.push_back(manifest.files[f]);
  }
  if (share.files.empty()) return OkStatus();
  VerifyOptions options;
  if (index != nullptr) options.leaves_blocks = HeldBy(*index);
  CKPT_ASSIGN_OR_RETURN(const Path directory, ManifestDirectory(storage, checkpoint));
  CKPT_ASSIGN_OR_RETURN(std::vector<Problem> problems,
                        VerifyManifest(storage, directory, share, KnownRunRoot(), options));
  std::erase_if(problems,
                [](const Problem& problem) { return problem.severity != Severity::kError; });
  return Status(std::move(problems));
}

namespace {

// The error for a source that has weights, but no optimizer state to resume.
Status NoRun(Storage& storage, const ModelSource& source, const Status& lack) {
  const Path config = source.checkpoint->path / std::string(kHfConfigName);
  const Result<FileStat> stat = storage.Stat(config);
  const bool is_repository = stat.ok() && stat->type == FileType::kRegular;
  return Error(lack.kind(), "there are weights, but no run to resume")
      .File(source.checkpoint->path.string())
      .Expected("a checkpoint that ckpt-train saved")
      .Actual(fmt::format("{}: {}", source.checkpoint->format->name, lack.first().message))
      .Hint(is_repository ? fmt::format("--init hf:{} starts a run with the weights",
                                        source.checkpoint->path.string())
                          : std::string("--set finetune=true takes only the weights"));
}

// An error about a part of a run would name the entry that is missing.
bool IsLackOfRun(const Status& status) {
  return status.kind() == ErrorKind::kMissing && status.first().tensor.empty();
}

Result<StatePtr> OpenWeights(Storage& storage, const Path& checkpoint,
                             const OpenModelOptions& options) {
  TrainingState state;
  CKPT_ASSIGN_OR_RETURN(state.weights, OpenModel(storage, checkpoint, options));
  CKPT_ASSIGN_OR_RETURN(state.args, ReadRunArgs(*state.weights.checkpoint));
  return std::make_shared<const TrainingState>(std::move(state));
}

}  // namespace

Result<StatePtr> OpenStoredRun(Storage& storage, const Path& checkpoint, LoadedPart part) {
  OpenModelOptions options;
  options.with_vocabulary_padding = true;
  if (part == LoadedPart::kWeights) return OpenWeights(storage, checkpoint, options);
  Result<TrainingState> run = OpenTrainingState(storage, checkpoint, options);
  if (!run.ok() && IsLackOfRun(run.status())) {
    Result<StatePtr> weights = OpenWeights(storage, checkpoint, options);
    if (part == LoadedPart::kRunOrWeights) return weights;
    if (weights.ok()) return NoRun(storage, (*weights)->weights, run.status());
  }
  if (!run.ok()) return std::move(run).status();
  return std::make_shared<const TrainingState>(*std::move(run));
}

// Every run has parameters that it updates.
bool IsWholeRun(const TrainingState& state) { return state.updated.checkpoint != nullptr; }

Result<StatePtr> OpenNewestRun(Storage& storage, const Path& root, LoadedPart part) {
  CKPT_ASSIGN_OR_RETURN(const std::vector<Path> candidates, ListCandidates(storage, root));
  Status refused;
  for (const Path& candidate : candidates) {
    Result<StatePtr> state = OpenStoredRun(storage, candidate, part);
    if (state.ok() || IsOfSystem(state.status().kind())) return state;
    refused.Add(std::move(state).status().While(GoingOnFrom(candidate)));
  }
  if (!refused.ok()) return refused;
  return StatePtr();
}

Status CheckReplacesNoOtherRun(Storage& storage, const CheckpointSettings& settings, bool goes_on) {
  if (settings.save.empty()) return OkStatus();
  CKPT_ASSIGN_OR_RETURN(const std::vector<std::int64_t> there,
                        megatron::ListIterations(storage, settings.save));
  if (there.empty()) return OkStatus();
  const Path save = CanonicalPath(settings.save);
  const Path load = goes_on ? CanonicalPath(settings.load) : Path();
  if (load == save || load == save / megatron::IterationName(there.back())) return OkStatus();
  return Error(ErrorKind::kAlreadyExists, "the folder to save in holds the checkpoints of a run")
      .File(settings.save.string())
      .Actual(fmt::format("{} iterations up to {}", there.size(), there.back()))
      .Hint(fmt::format("resume them with --load {}, or save elsewhere", settings.save.string()));
}

std::string GoingOnFrom(const Path& checkpoint) { return "resuming " + checkpoint.string(); }

}  // namespace ckpt::train
