#include "formats/mp_rank/internal/rank_directories.h"

#include <map>

#include <fmt/format.h>

#include "core/base/name_list.h"
#include "core/base/text_number.h"

namespace ckpt::mp_rank {
namespace {

constexpr std::string_view kPrefix = "mp_rank_";
// The pickles of all ranks are in memory at once.
constexpr std::int64_t kMaxRanks = 1 << 16;
constexpr std::size_t kMaxNumbers = 3;

using Numbers = std::vector<std::int64_t>;

bool IsWithin(std::int64_t size) { return size >= 1 && size <= kMaxRanks; }

// What follows "mp_rank_" in a job of these sizes.
Numbers NumbersOf(const Coordinate& at, const Sizes& sizes) {
  Numbers numbers = {at.tensor};
  if (sizes.pipeline > 1) numbers.push_back(at.pipeline);
  if (sizes.expert > 1) numbers.push_back(at.expert);
  return numbers;
}

}  // namespace

std::optional<Numbers> ParseRankDirectory(std::string_view name) {
  if (!TakePrefix(kPrefix, name)) return std::nullopt;
  Numbers numbers;
  while (numbers.size() < kMaxNumbers) {
    const std::optional<std::int64_t> number = TakeNumber<std::int64_t>(name);
    if (!number || *number < 0) return std::nullopt;
    numbers.push_back(*number);
    if (name.empty()) return numbers;
    if (!TakePrefix("_", name)) return std::nullopt;
  }
  return std::nullopt;
}

Result<std::vector<RankDirectory>> FindRankDirectories(const Path& directory,
                                                       std::span<const DirectoryEntry> entries,
                                                       const Sizes& sizes) {
  const bool is_possible = IsWithin(sizes.tensor) && IsWithin(sizes.pipeline) &&
                           IsWithin(sizes.expert) &&
                           sizes.tensor * sizes.pipeline <= kMaxRanks / sizes.expert;
  if (!is_possible) {
    return Error(ErrorKind::kBadMetadata, "the arguments name an impossible number of ranks")
        .File(directory.string())
        .Expected(fmt::format("1 to {} in all", kMaxRanks))
        .Actual(fmt::format("{} x {} x {}", sizes.tensor, sizes.pipeline, sizes.expert));
  }
  std::map<Numbers, std::string> found;
  for (const DirectoryEntry& entry : entries) {
    const std::optional<Numbers> numbers = ParseRankDirectory(entry.name);
    if (entry.type != FileType::kDirectory || !numbers) continue;
    if (!found.emplace(*numbers, entry.name).second) {
      return Error(ErrorKind::kBadMetadata, "two directories belong to one rank")
          .File((directory / entry.name).string())
          .Actual(fmt::format("{} and {}", found.at(*numbers), entry.name));
    }
  }
  std::vector<RankDirectory> ranks;
  std::vector<std::string> missing;
  for (Coordinate at; at.tensor < sizes.tensor; ++at.tensor) {
    for (at.pipeline = 0; at.pipeline < sizes.pipeline; ++at.pipeline) {
      for (at.expert = 0; at.expert < sizes.expert; ++at.expert) {
        const Numbers numbers = NumbersOf(at, sizes);
        const auto own = found.find(numbers);
        if (own == found.end()) {
          missing.push_back(fmt::format("{}{:02}", kPrefix, numbers.front()));
          for (std::size_t i = 1; i < numbers.size(); ++i) {
            missing.back() += fmt::format("_{:03}", numbers[i]);
          }
          continue;
        }
        ranks.push_back({.name = own->second, .at = at});
        found.erase(own);
      }
    }
  }
  const std::string sized = fmt::format("{} directories: tensor {}, pipeline {}, expert {}",
                                        sizes.tensor * sizes.pipeline * sizes.expert, sizes.tensor,
                                        sizes.pipeline, sizes.expert);
  if (!missing.empty()) {
    return Error(ErrorKind::kMissingFile, "directories of ranks are missing")
        .File(directory.string())
        .Expected(sized)
        .Actual("no " + NameSome(missing));
  }
  if (!found.empty()) {
    return Error(ErrorKind::kBadMetadata, "a directory belongs to no rank of the job")
        .File((directory / found.begin()->second).string())
        .Expected(sized)
        .Actual(found.begin()->second);
  }
  return ranks;
}

}  // namespace ckpt::mp_rank
