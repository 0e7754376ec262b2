#include "formats/verl/internal/source.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <map>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "core/base/name_list.h"
#include "core/base/units.h"
#include "core/base/warning.h"
#include "formats/torch_save/rank_set.h"
#include "formats/verl/internal/optimizer.h"
#include "formats/verl/internal/rank_files.h"
#include "formats/verl/internal/rank_tensors.h"

namespace ckpt::verl {
namespace {

using torch_save::PlacedPart;
using torch_save::RankSet;
using torch_save::RankTensor;

constexpr std::string_view kOptimizerFiles = "optim";

// What lies beside the model and is not read: the other states of the same save.
std::optional<Problem> WarnOfOtherStates(Storage& storage, const Path& directory,
                                         std::span<const DirectoryEntry> entries,
                                         std::string_view read) {
  std::set<std::string> states;
  std::uint64_t size_bytes = 0;
  for (const DirectoryEntry& entry : entries) {
    const std::optional<RankFile> file = ParseRankFile(entry.name);
    if (!file || IsModelFile(entry.name) || file->state == read) continue;
    states.emplace(file->state);
    const Result<FileStat> stat = storage.Stat(directory / entry.name);
    if (stat.ok()) size_bytes += stat->size_bytes;
  }
  if (states.empty()) return std::nullopt;
  Problem warning =
      Warning(ErrorKind::kLeftover, "states beside the model are not read", directory.string(), "");
  warning.actual = fmt::format("{}, {}", NameSome(std::vector(states.begin(), states.end())),
                               FormatByteSize(size_bytes));
  warning.hint = "open their files one by one";
  return warning;
}

constexpr std::string_view kWithoutOptimizer =
    "a directory without the optimizer's files is read as the model alone";

// Adds why the optimizer is not read to the problems. `were_opened`: its files are whole, for all
// that is known. Then that they mean something else is a warning; all the rest are errors of the
// checkpoint. Errors: those of the system.
Status AddReason(const Status& why, bool were_opened, RankSet& set) {
  std::vector<Problem> damage;
  for (const Problem& problem : why.problems()) {
    if (IsUnread(problem.kind)) return why;
    const bool is_foreign = were_opened && problem.kind == ErrorKind::kUnsupported;
    if (is_foreign) continue;
    damage.push_back(problem);
    torch_save::AddHint(kWithoutOptimizer, damage.back());
  }
  if (damage.empty()) {
    // The ranks' files are alike: one says enough.
    damage.push_back(why.first());
    damage.back().severity = Severity::kWarning;
  }
  std::ranges::move(damage, std::back_inserter(set.problems));
  return OkStatus();
}

// The optimizer's files come behind the model's.
void AppendOptimizer(RankSet files, NamedOptimizer optimizer, RankSet& set) {
  const std::size_t first = set.files.size();
  for (RankTensor& tensor : optimizer.tensors) {
    for (PlacedPart& part : tensor.parts) part.file += first;
    set.tensors.push_back(std::move(tensor));
  }
  for (const auto& [key, make] : optimizer.groups) {
    for (std::size_t file = 0; file < files.files.size(); ++file) {
      set.objects.push_back({.key = key, .file = static_cast<FileId>(first + file)});
    }
  }
  set.made = std::move(optimizer.groups);
  std::ranges::move(files.names, std::back_inserter(set.names));
  std::ranges::move(files.files, std::back_inserter(set.files));
}

// Adds the optimizer's files of all ranks to the model's. Returns whether they are there and are an
// optimizer of the model. Another one, and one of which files are missing, is a warning, a damaged
// one an error among the problems.
// Errors: those of the system.
Result<bool> AddOptimizer(Storage& storage, const Path& directory,
                          std::span<const DirectoryEntry> entries, RankSet& set) {
  const Result<std::vector<std::string>> names =
      FindStateFiles(kOptimizerFiles, set.files.size(), entries);
  if (!names.ok()) {
    Problem absent = Status(names.status()).File(directory.string()).first();
    absent.severity = Severity::kWarning;
    set.problems.push_back(std::move(absent));
    return false;
  }
  if (names->empty()) return false;
  Result<RankSet> files = torch_save::OpenRankFiles(storage, directory, *names);
  if (!files.ok()) {
    CKPT_RETURN_IF_ERROR(AddReason(files.status(), /*were_opened=*/false, set));
    return false;
  }
  CKPT_ASSIGN_OR_RETURN(const std::vector<Parameter> parameters, ListParameters(set));
  Result<NamedOptimizer> optimizer = NameOptimizer(*files, parameters);
  if (!optimizer.ok()) {
    CKPT_RETURN_IF_ERROR(AddReason(optimizer.status(), /*were_opened=*/true, set));
    return false;
  }
  AppendOptimizer(*std::move(files), *std::move(optimizer), set);
  return true;
}

// What the files hold besides these tensors.
void AddRest(const std::map<std::string, Parts>& tensors, RankSet& set) {
  for (FileId file = 0; file < set.files.size(); ++file) {
    const CheckpointIndex& of_rank = set.files[file]->index();
    for (const Problem& problem : of_rank.problems()) {
      if (!tensors.contains(problem.tensor)) set.problems.push_back(problem);
    }
    for (ObjectEntry object : of_rank.objects()) {
      if (tensors.contains(object.key)) continue;
      object.file = file;
      set.objects.push_back(std::move(object));
    }
  }
}

}  // namespace

Result<std::unique_ptr<CheckpointSource>> OpenSource(Storage& storage, const Path& directory) {
  CKPT_ASSIGN_OR_RETURN(const std::vector<DirectoryEntry> entries, storage.List(directory));
  CKPT_ASSIGN_OR_RETURN(std::vector<std::string> names, FindModelFiles(directory, entries));
  CKPT_ASSIGN_OR_RETURN(RankSet set,
                        torch_save::OpenRankFiles(storage, directory, std::move(names)));
  CKPT_ASSIGN_OR_RETURN(const auto tensors, CollectParts(set));
  for (const auto& [key, parts] : tensors) {
    set.tensors.push_back(Assemble(key, parts, set.names));
  }
  AddRest(tensors, set);
  CKPT_ASSIGN_OR_RETURN(const bool has_optimizer, AddOptimizer(storage, directory, entries, set));
  const std::optional<Problem> warning = WarnOfOtherStates(
      storage, directory, entries, has_optimizer ? kOptimizerFiles : std::string_view());
  if (warning) set.problems.push_back(*warning);
  return torch_save::RankSetSource::Make(std::move(set));
}

}  // namespace ckpt::verl
