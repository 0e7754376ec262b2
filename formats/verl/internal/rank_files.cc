#include "formats/verl/internal/rank_files.h"

#include <map>
#include <set>

#include <fmt/format.h>

#include "core/base/counted.h"
#include "core/base/name_list.h"
#include "core/base/text_number.h"

namespace ckpt::verl {
namespace {

constexpr std::string_view kModel = "model";
// Of a world. The pickles of all ranks are in memory at once.
constexpr std::int64_t kMaxRanks = 1 << 16;

std::string NameOf(std::int64_t world_size, std::int64_t rank, std::string_view state = kModel) {
  return fmt::format("{}_world_size_{}_rank_{}.pt", state, world_size, rank);
}

Status Missing(std::size_t world_size, const std::vector<std::string>& names) {
  return Error(ErrorKind::kMissingFile, "files of ranks are missing")
      .Expected(Counted(world_size, "file"))
      .Actual("no " + NameSome(names));
}

}  // namespace

std::optional<RankFile> ParseRankFile(std::string_view name) {
  constexpr std::string_view kWorld = "_world_size_";
  const std::size_t world = name.find(kWorld);
  if (world == std::string_view::npos) return std::nullopt;
  std::string_view rest = name.substr(world + kWorld.size());
  const std::optional<std::int64_t> world_size = TakeNumber<std::int64_t>(rest);
  if (!world_size || *world_size < 0 || !TakePrefix("_rank_", rest)) return std::nullopt;
  const std::optional<std::int64_t> rank = TakeNumber<std::int64_t>(rest);
  if (!rank || *rank < 0 || rest != ".pt") return std::nullopt;
  return RankFile{.state = name.substr(0, world), .world_size = *world_size, .rank = *rank};
}

bool IsModelFile(std::string_view name) {
  const std::optional<RankFile> file = ParseRankFile(name);
  return file && file->state == kModel;
}

Result<std::vector<std::string>> FindStateFiles(std::string_view state, std::size_t world_size,
                                                std::span<const DirectoryEntry> entries) {
  std::set<std::string_view> present;
  for (const DirectoryEntry& entry : entries) present.insert(entry.name);
  std::vector<std::string> names;
  std::vector<std::string> missing;
  for (std::size_t rank = 0; rank < world_size; ++rank) {
    names.push_back(
        NameOf(static_cast<std::int64_t>(world_size), static_cast<std::int64_t>(rank), state));
    if (!present.contains(names.back())) missing.push_back(names.back());
  }
  if (missing.size() == world_size) return std::vector<std::string>();
  if (!missing.empty()) return Missing(world_size, missing);
  return names;
}

Result<std::vector<std::string>> FindModelFiles(const Path& directory,
                                                std::span<const DirectoryEntry> entries) {
  std::map<std::int64_t, std::set<std::int64_t>> ranks;  // by world size
  for (const DirectoryEntry& entry : entries) {
    const std::optional<RankFile> file = ParseRankFile(entry.name);
    if (file && file->state == kModel) ranks[file->world_size].insert(file->rank);
  }
  if (ranks.size() > 1) {
    return Error(ErrorKind::kBadMetadata, "files of several world sizes lie in one folder")
        .File(directory.string())
        .Expected("the files of one save")
        .Actual(fmt::format("world sizes {} and {}", ranks.begin()->first, ranks.rbegin()->first));
  }
  if (ranks.empty()) {
    return Error(ErrorKind::kMissingFile, "no file of a rank is there").File(directory.string());
  }
  const auto& [world_size, found] = *ranks.begin();
  if (world_size > kMaxRanks || *found.rbegin() >= world_size) {
    return Error(ErrorKind::kBadMetadata, "a file's rank is not in its world")
        .File((directory / NameOf(world_size, *found.rbegin())).string())
        .Expected(fmt::format("a rank below the world size, and no more than {} ranks", kMaxRanks));
  }
  std::vector<std::string> names;
  std::vector<std::string> missing;
  for (std::int64_t rank = 0; rank < world_size; ++rank) {
    names.push_back(NameOf(world_size, rank));
    if (!found.contains(rank)) missing.push_back(names.back());
  }
  if (!missing.empty()) {
    return Missing(static_cast<std::size_t>(world_size), missing).File(directory.string());
  }
  return names;
}

}  // namespace ckpt::verl
