#include "formats/mp_rank/internal/source.h"

#include <algorithm>
#include <array>
#include <cstddef>
#include <iterator>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "formats/mp_rank/internal/arguments.h"
#include "formats/mp_rank/internal/global_name.h"
#include "formats/mp_rank/internal/merged_tensors.h"
#include "formats/mp_rank/internal/optimizer.h"
#include "formats/mp_rank/internal/optimizer_groups.h"
#include "formats/mp_rank/internal/rank_directories.h"
#include "formats/mp_rank/internal/rank_models.h"
#include "formats/mp_rank/internal/unread_states.h"
#include "formats/torch_save/rank_set.h"

namespace ckpt::mp_rank {
namespace {

using torch_save::RankSet;
using torch_save::TorchSaveSource;

// Keys that Megatron-Core's checkpoints of a run have, so that this one is understood as they are.
constexpr std::string_view kCommonState = "common_state";
constexpr std::string_view kOptimizerState = "optimizer.state";
// A rank's file; the second name is that of a job whose optimizer is distributed, of some versions.
constexpr std::array<std::string_view, 2> kFileNames = {"model_optim_rng.pt", "model_rng.pt"};

// "model", "model0", …, and not "modelopt_state".
bool IsOfModel(const std::string& member) { return ParseLocalName(member + ".").has_value(); }

// The file in a rank's directory, which is relative to `root`.
Result<std::string> FileIn(Storage& storage, const Path& root, const std::string& directory) {
  for (const std::string_view name : kFileNames) {
    std::string file = directory + "/" + std::string(name);
    CKPT_ASSIGN_OR_RETURN(const FileStat stat, storage.Stat(root / file));
    if (stat.type == FileType::kRegular) return file;
  }
  return Error(ErrorKind::kMissingFile, "a rank's directory does not hold its model")
      .File((root / directory).string())
      .Expected(fmt::format("{}", fmt::join(kFileNames, " or ")));
}

// The arguments, from the file of any rank.
Result<Arguments> FindArguments(Storage& storage, const Path& root,
                                const std::vector<DirectoryEntry>& entries) {
  const auto any = std::ranges::find_if(entries, [](const DirectoryEntry& entry) {
    return entry.type == FileType::kDirectory && ParseRankDirectory(entry.name).has_value();
  });
  if (any == entries.end()) {
    return Error(ErrorKind::kMissingFile, "no directory of a rank is there").File(root.string());
  }
  CKPT_ASSIGN_OR_RETURN(const std::string name, FileIn(storage, root, any->name));
  CKPT_ASSIGN_OR_RETURN(const std::unique_ptr<TorchSaveSource> file,
                        TorchSaveSource::Open(storage, root / name));
  Result<Arguments> arguments = ReadArguments(*file);
  if (!arguments.ok()) return std::move(arguments).status().File((root / name).string());
  return arguments;
}

// Each rank of those that share the experts has as many of them.
Status CheckExperts(const Arguments& arguments, const Path& root) {
  const std::int64_t ranks = arguments.sizes.expert;
  const std::int64_t experts = arguments.num_experts;
  if (experts >= 0 && experts % ranks == 0 && (experts > 0 || ranks == 1)) return OkStatus();
  return Error(ErrorKind::kBadMetadata, "the ranks cannot share so many experts evenly")
      .File(root.string())
      .Expected(fmt::format("a multiple of expert_model_parallel_size, {}", ranks))
      .Actual(fmt::format("num_experts {}", experts));
}

Parts PartsOfModel(const RankModels& models, const std::vector<RankDirectory>& ranks,
                   const Arguments& arguments) {
  Parts tensors;
  for (std::size_t file = 0; file < models.parts.size(); ++file) {
    for (std::size_t i = 0; i < models.parts[file].size(); ++i) {
      const std::string& name = models.names[file][i];
      if (name.empty()) continue;
      AddPart(name, {.file = file, .at = ranks[file].at, .local = models.parts[file][i].local},
              arguments, tensors);
    }
  }
  return tensors;
}

bool HasOptimizer(const RankSet& set) {
  const std::vector<std::string> members = set.files.front()->members();
  return std::ranges::find(members, kOptimizerMember) != members.end();
}

// Whether the bytes of a file that could be opened are not those that were saved.
bool IsDamage(ErrorKind kind) {
  return kind == ErrorKind::kTruncated || kind == ErrorKind::kChecksum ||
         kind == ErrorKind::kBadItem;
}

// Adds why the buffers' files cannot be opened to the problems. Files that are there were saved, so
// that one is of another kind is damage, too. Errors: those of the system.
Status AddDamage(const Status& why, RankSet& set) {
  for (const Problem& problem : why.problems()) {
    if (IsUnread(problem.kind)) return why;
  }
  for (Problem problem : why.problems()) {
    torch_save::AddHint(
        "without its distrib_optim.pt files the directory is read as the model alone", problem);
    set.problems.push_back(std::move(problem));
  }
  return OkStatus();
}

// Adds what the optimizers keep, under the keys of Megatron-Core, and the common state in place of
// the objects that it consists of. Returns whether it could be read; why not is a warning, and an
// error of the checkpoint if it is damaged. Errors: those of the system.
Result<bool> AddOptimizer(Storage& storage, const Path& directory,
                          const std::vector<RankDirectory>& ranks, const RankModels& models,
                          const Arguments& arguments, RankSet& set) {
  if (!HasOptimizer(set)) return false;
  Result<BufferFiles> buffers = OpenBufferFiles(storage, directory, ranks);
  if (!buffers.ok()) {
    CKPT_RETURN_IF_ERROR(AddDamage(buffers.status(), set));
    return false;
  }
  Result<OptimizerState> state =
      ReadOptimizer(*std::move(buffers), set, ranks, models.parts, arguments);
  if (!state.ok()) {
    const ErrorKind kind = state.status().kind();
    if (IsUnread(kind)) return std::move(state).status();
    Problem problem = state.status().first();
    if (!IsDamage(kind)) problem.severity = Severity::kWarning;
    set.problems.push_back(std::move(problem));
    return false;
  }
  std::map<std::string, Parts> of_fields;
  for (OptimizerPart& part : state->parts) {
    const std::string& name = models.names[part.rank][part.position];
    AddPart(name, {.file = part.file, .at = ranks[part.rank].at, .local = std::move(part.local)},
            arguments, of_fields[part.field]);
  }
  std::ranges::move(state->files.names, std::back_inserter(set.names));
  std::ranges::move(state->files.files, std::back_inserter(set.files));
  for (const auto& [field, tensors] : of_fields) {
    AddTensors(fmt::format("{}.{}.", kOptimizerState, field), tensors, arguments, set);
  }
  for (std::size_t rank = 0; rank < ranks.size(); ++rank) {
    set.objects.push_back({.key = std::string(kCommonState), .file = static_cast<FileId>(rank)});
  }
  set.made.emplace(kCommonState, std::move(state->common));
  return true;
}

// The small objects.
void AddObjects(RankSet& set) {
  for (FileId file = 0; file < set.files.size(); ++file) {
    for (const std::string& member : set.files[file]->members()) {
      const bool is_object = !IsOfModel(member) && !IsOwnState(member);
      if (is_object) set.objects.push_back({.key = member, .file = file});
    }
  }
}

}  // namespace

Result<std::unique_ptr<CheckpointSource>> OpenSource(Storage& storage, const Path& directory) {
  CKPT_ASSIGN_OR_RETURN(const std::vector<DirectoryEntry> entries, storage.List(directory));
  CKPT_ASSIGN_OR_RETURN(const Arguments arguments, FindArguments(storage, directory, entries));
  CKPT_ASSIGN_OR_RETURN(const std::vector<RankDirectory> ranks,
                        FindRankDirectories(directory, entries, arguments.sizes));
  CKPT_RETURN_IF_ERROR(CheckExperts(arguments, directory));
  std::vector<std::string> names;
  Status failures;
  for (const RankDirectory& rank : ranks) {
    Result<std::string> name = FileIn(storage, directory, rank.name);
    if (name.ok()) {
      names.push_back(*std::move(name));
    } else {
      failures.Add(std::move(name).status());
    }
  }
  if (!failures.ok()) return failures;
  CKPT_ASSIGN_OR_RETURN(RankSet set,
                        torch_save::OpenRankFiles(storage, directory, std::move(names)));
  CKPT_ASSIGN_OR_RETURN(const RankModels models, ReadModels(set, ranks, arguments));
  AddTensors(fmt::format("{}.", kModelMember), PartsOfModel(models, ranks, arguments), arguments,
             set);
  CKPT_ASSIGN_OR_RETURN(const bool has_optimizer,
                        AddOptimizer(storage, directory, ranks, models, arguments, set));
  if (!has_optimizer) AddObjects(set);
  CKPT_ASSIGN_OR_RETURN(
      std::optional<Problem> warning,
      WarnOfUnread(storage, directory, ranks, set, models.extra_state_bytes, has_optimizer));
  if (warning) set.problems.push_back(*std::move(warning));
  return torch_save::RankSetSource::Make(std::move(set));
}

}  // namespace ckpt::mp_rank
