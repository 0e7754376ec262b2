#include "formats/safetensors/internal/repository.h"

#include <algorithm>
#include <iterator>
#include <map>
#include <set>
#include <string_view>
#include <utility>

#include <fmt/format.h>

#include "core/base/name_list.h"
#include "core/base/text_number.h"

namespace ckpt::safetensors {
namespace {

constexpr std::uint64_t kMaxIndexBytes = 512ULL << 20;

// "model-00002-of-00005" → model, 2, 5. Shards of torch's distributed writer are numbered by rank
// and hold what the rank had, so their numbers do not say how many files there must be.
struct NumberedName {
  std::string stem;
  std::uint32_t number = 0;
  std::uint32_t total = 0;
};

std::optional<NumberedName> ParseNumbered(std::string_view name) {
  constexpr std::size_t kTail = std::string_view("-00001-of-00005").size();
  if (name.size() <= kTail || name.starts_with("shard-")) return {};
  const std::string_view tail = name.substr(name.size() - kTail);
  const std::optional<std::uint32_t> number = ParseNumber<std::uint32_t>(tail.substr(1, 5));
  const std::optional<std::uint32_t> total = ParseNumber<std::uint32_t>(tail.substr(10, 5));
  if (tail[0] != '-' || tail.substr(6, 4) != "-of-" || !number || !total) return {};
  return NumberedName{std::string(name.substr(0, name.size() - kTail)), *number, *total};
}

std::string WithoutNumbers(std::string_view name) {
  const std::optional<NumberedName> numbered = ParseNumbered(name);
  return numbered ? numbered->stem : std::string(name);
}

// "shard-00003-model-00002-of-00005" → 3, and the rest. Ranks count from 1.
struct RankShard {
  std::uint32_t rank = 0;
  NumberedName of;
};

std::optional<RankShard> ParseRankShard(std::string_view name) {
  constexpr std::string_view kHead = "shard-";
  constexpr std::size_t kDigits = 5;
  constexpr std::size_t kRest = kHead.size() + kDigits + 1;
  if (name.size() <= kRest || !name.starts_with(kHead) || name[kRest - 1] != '-') return {};
  const std::optional<std::uint32_t> rank =
      ParseNumber<std::uint32_t>(name.substr(kHead.size(), kDigits));
  std::optional<NumberedName> of = ParseNumbered(name.substr(kRest));
  if (!rank || *rank == 0 || !of || of->number == 0 || of->number > of->total) return {};
  return RankShard{.rank = *rank, .of = *std::move(of)};
}

bool IsWeights(std::string_view name) { return name.ends_with(kFileSuffix); }

// The name without its ending. REQUIRES: it is of weights or of an index.
std::string_view StemOf(std::string_view name) {
  name.remove_suffix(IsWeights(name) ? kFileSuffix.size() : kIndexSuffix.size());
  return name;
}

// Whether the file is a variant of another one: where there is "a", also in shards, "a.fp16" has
// the same tensors in another dtype, and "a.non_ema" from another moment of the training. Older
// libraries wrote "a-00001-of-00002.fp16". A digit begins no variant, but goes on with a version or
// a number: "a-3.1" is not "a-3".
//
// REQUIRES: `stems` are those of all files, without numbers.
bool IsVariant(std::string_view name, const std::set<std::string>& stems) {
  const std::string stem = WithoutNumbers(StemOf(name));
  for (std::size_t dot = stem.find('.'); dot != stem.npos; dot = stem.find('.', dot + 1)) {
    const char next = stem[dot + 1];  // '\0' at the end
    if (!IsDigit(next) && stems.contains(WithoutNumbers(stem.substr(0, dot)))) return true;
  }
  return false;
}

// REQUIRES: all names are of weights or of indexes.
std::vector<std::string> WithoutVariants(std::vector<std::string> names) {
  std::set<std::string> stems;
  for (const std::string& name : names) stems.insert(WithoutNumbers(StemOf(name)));
  std::erase_if(names, [&](const std::string& name) { return IsVariant(name, stems); });
  return names;
}

// The index to follow, if any.
std::string ChooseIndex(const std::vector<std::string>& names) {
  std::vector<std::string> indexes;
  for (const std::string& name : names) {
    if (name == kIndexFileName) return name;
    if (!IsWeights(name)) indexes.push_back(name);
  }
  return indexes.size() == 1 ? indexes[0] : "";
}

// The group of case 3, or nothing. Errors: kMissingFile.
Result<std::vector<std::string>> ChooseNumbered(const std::vector<std::string>& weights) {
  std::map<std::pair<std::string, std::uint32_t>, std::set<std::uint32_t>> groups;
  for (const std::string& name : weights) {
    if (const auto parsed = ParseNumbered(StemOf(name))) {
      groups[{parsed->stem, parsed->total}].insert(parsed->number);
    }
  }
  if (groups.empty()) return std::vector<std::string>();
  const auto named_model = std::find_if(groups.begin(), groups.end(),
                                        [](const auto& g) { return g.first.first == "model"; });
  const auto& [key, numbers] = named_model != groups.end() ? *named_model : *groups.begin();
  const std::string& stem = key.first;
  const std::uint32_t total = key.second;
  const auto name_of = [&](std::uint32_t i) {
    return fmt::format("{}-{:05d}-of-{:05d}{}", stem, i, total, kFileSuffix);
  };
  std::vector<std::string> chosen;
  Status missing;
  for (std::uint32_t i = 1; i <= total; ++i) {
    chosen.push_back(name_of(i));
    if (!numbers.contains(i)) {
      missing.Add(Error(ErrorKind::kMissingFile, "a shard is missing")
                      .File(name_of(i))
                      .Expected(fmt::format("{} shards", total))
                      .Actual(fmt::format("{} shards", numbers.size())));
    }
  }
  if (!missing.ok()) return missing;
  return chosen;
}

// REQUIRES: `names` are of weights.
std::vector<AbsentShards> FindAbsent(const std::set<std::string>& names,
                                     const std::string& prefix) {
  using Place = std::pair<std::uint32_t, std::uint32_t>;  // number, rank
  std::map<std::pair<std::string, std::uint32_t>, std::set<Place>> groups;
  for (const std::string& name : names) {
    if (auto shard = ParseRankShard(StemOf(name))) {
      groups[{std::move(shard->of.stem), shard->of.total}].emplace(shard->of.number, shard->rank);
    }
  }
  std::vector<AbsentShards> all;
  for (const auto& [key, present] : groups) {
    AbsentShards absent{.ranks = 0, .total = key.second, .names = {}, .count = 0};
    for (const auto& [number, rank] : present) absent.ranks = std::max(absent.ranks, rank);
    // Both have five digits. Every step of the loop finds a file, or one of the few that are named.
    absent.count = std::uint64_t{absent.ranks} * absent.total - present.size();
    const std::uint64_t named = std::min<std::uint64_t>(absent.count, kMostNamed);
    for (std::uint32_t number = 1; absent.names.size() < named; ++number) {
      for (std::uint32_t rank = 1; rank <= absent.ranks && absent.names.size() < named; ++rank) {
        if (present.contains({number, rank})) continue;
        absent.names.push_back(fmt::format("{}shard-{:05d}-{}-{:05d}-of-{:05d}{}", prefix, rank,
                                           key.first, number, absent.total, kFileSuffix));
      }
    }
    if (absent.count > 0) all.push_back(std::move(absent));
  }
  return all;
}

Result<RepositoryFiles> FindIn(Storage& storage, const Path& directory, const std::string& prefix) {
  CKPT_ASSIGN_OR_RETURN(const std::vector<DirectoryEntry> entries,
                        storage.List(directory / prefix));
  std::vector<std::string> names;  // of weights and indexes
  for (const DirectoryEntry& entry : entries) {
    if (entry.type == FileType::kDirectory) continue;
    if (IsWeights(entry.name) || entry.name.ends_with(kIndexSuffix)) names.push_back(entry.name);
  }
  std::vector<std::string> weights;
  std::ranges::copy_if(names, std::back_inserter(weights), IsWeights);

  RepositoryFiles files;
  std::set<std::string> wanted;
  if (std::binary_search(weights.begin(), weights.end(), kSingleFileName)) {
    wanted.emplace(kSingleFileName);
  } else if (const std::string name = ChooseIndex(WithoutVariants(names)); !name.empty()) {
    const Path path = directory / (prefix + name);
    CKPT_ASSIGN_OR_RETURN(const std::string text, ReadSmallFile(storage, path, kMaxIndexBytes));
    CKPT_ASSIGN_OR_RETURN(files.index, ParseShardedIndex(text, path.string()));
    files.index_name = prefix + name;
    for (auto& [tensor, file] : files.index->weight_map) {
      wanted.insert(file);
      file.insert(0, prefix);
    }
  } else {
    const std::vector<std::string> plain = WithoutVariants(weights);
    CKPT_ASSIGN_OR_RETURN(const std::vector<std::string> numbered, ChooseNumbered(plain));
    const std::vector<std::string>& chosen = numbered.empty() ? plain : numbered;
    wanted.insert(chosen.begin(), chosen.end());
    files.absent = FindAbsent(wanted, prefix);
  }

  for (const std::string& name : wanted) {
    // An index may name files of a subdirectory, so the listing does not decide.
    CKPT_ASSIGN_OR_RETURN(const FileStat stat, storage.Stat(directory / (prefix + name)));
    (stat.type == FileType::kRegular ? files.shards : files.missing).push_back(prefix + name);
  }
  for (const std::string& name : weights) {
    if (!wanted.contains(name)) files.leftover.push_back(prefix + name);
  }
  return files;
}

}  // namespace

Result<RepositoryFiles> FindRepositoryFiles(Storage& storage, const Path& directory) {
  CKPT_ASSIGN_OR_RETURN(RepositoryFiles files, FindIn(storage, directory, ""));
  if (!files.shards.empty() || !files.missing.empty() || files.index) return files;
  CKPT_ASSIGN_OR_RETURN(const FileStat sharded, storage.Stat(directory / "sharded"));
  if (sharded.type == FileType::kDirectory) {
    CKPT_ASSIGN_OR_RETURN(files, FindIn(storage, directory, "sharded/"));
    if (!files.shards.empty()) return files;
  }
  return Error(ErrorKind::kNotFound, "no safetensors files in the directory")
      .File(directory.string());
}

}  // namespace ckpt::safetensors
