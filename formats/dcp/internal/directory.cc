#include "formats/dcp/internal/directory.h"

#include <algorithm>
#include <cstdint>
#include <optional>
#include <string_view>
#include <unordered_set>
#include <utility>

#include "core/base/text_number.h"
#include "core/base/warning.h"
#include "core/checkpoint/index.h"

namespace ckpt::dcp {
namespace {

constexpr std::string_view kMetadataName = ".metadata";
constexpr std::string_view kUnfinishedSuffix = ".metadata.tmp";

// The rank in "__3.metadata".
std::optional<std::uint64_t> RankOf(std::string_view name) {
  if (!TakePrefix("__", name) || !name.ends_with(kMetadataName)) return std::nullopt;
  name.remove_suffix(kMetadataName.size());
  return ParseNumber<std::uint64_t>(name);
}

}  // namespace

Result<std::vector<std::string>> FindMetadataFiles(Storage& storage, const Path& directory) {
  CKPT_ASSIGN_OR_RETURN(const FileStat stat, storage.Stat(directory));
  if (stat.type != FileType::kDirectory) {
    return Error(ErrorKind::kNotFound, "no such directory").File(directory.string());
  }
  CKPT_ASSIGN_OR_RETURN(const std::vector<DirectoryEntry> entries, storage.List(directory));
  std::vector<std::pair<std::uint64_t, std::string>> by_rank;
  bool has_data = false;
  for (const DirectoryEntry& entry : entries) {
    if (entry.name == kMetadataName) return std::vector<std::string>{entry.name};
    if (const auto rank = RankOf(entry.name)) by_rank.emplace_back(*rank, entry.name);
    has_data =
        has_data || entry.name.ends_with(kDataSuffix) || entry.name.ends_with(kUnfinishedSuffix);
  }
  if (by_rank.empty()) {
    return Error(has_data ? ErrorKind::kIncomplete : ErrorKind::kNotFound,
                 has_data ? "no .metadata beside the data files: an interrupted save"
                          : "no .metadata: not a distributed checkpoint")
        .File(directory.string());
  }
  std::sort(by_rank.begin(), by_rank.end());
  std::vector<std::string> names;
  names.reserve(by_rank.size());
  for (auto& [rank, name] : by_rank) names.push_back(std::move(name));
  return names;
}

Result<std::vector<Problem>> FindLeftovers(Storage& storage, const Path& directory,
                                           std::span<const std::string> named) {
  const std::unordered_set<std::string_view> known(named.begin(), named.end());
  CKPT_ASSIGN_OR_RETURN(const std::vector<DirectoryEntry> entries, storage.List(directory));
  std::vector<Problem> problems;
  for (const DirectoryEntry& entry : entries) {
    const std::string path = (directory / entry.name).string();
    if (entry.name.ends_with(kUnfinishedSuffix)) {
      Problem problem =
          Warning(ErrorKind::kIncomplete,
                  "a later save into this folder was interrupted: values may be mixed", path);
      problem.hint = "verify against a digest taken before, or fall back to an earlier checkpoint";
      problems.push_back(std::move(problem));
    }
    if (!entry.name.ends_with(kDataSuffix) || known.contains(entry.name)) continue;
    CKPT_ASSIGN_OR_RETURN(const FileStat stat, storage.Stat(directory / entry.name));
    if (stat.size_bytes == 0) continue;
    problems.push_back(Warning(ErrorKind::kLeftover, "a data file that no entry refers to", path));
  }
  return problems;
}

}  // namespace ckpt::dcp
