// The directories of Megatron's ranks, and which of them a job has.
#ifndef CKPT_FORMATS_MP_RANK_INTERNAL_RANK_DIRECTORIES_H_
#define CKPT_FORMATS_MP_RANK_INTERNAL_RANK_DIRECTORIES_H_

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/base/result.h"
#include "core/io/storage.h"

namespace ckpt::mp_rank {

// By how many ranks a model is divided, in each way.
struct Sizes {
  std::int64_t tensor = 1;
  std::int64_t pipeline = 1;
  std::int64_t expert = 1;
};

// A rank's place in each.
struct Coordinate {
  std::int64_t tensor = 0;
  std::int64_t pipeline = 0;
  std::int64_t expert = 0;
};

// The numbers of "mp_rank_01", "mp_rank_01_000", "mp_rank_01_000_003": tensor rank, then pipeline
// and expert rank where there are several.
[[nodiscard]] std::optional<std::vector<std::int64_t>> ParseRankDirectory(std::string_view name);

struct RankDirectory {
  std::string name;
  Coordinate at;
};

// The directory of every rank, by tensor, pipeline and expert rank. Errors: kMissingFile (of some
// ranks; all are named), kBadMetadata (directories of another job, or more ranks than can be).
Result<std::vector<RankDirectory>> FindRankDirectories(const Path& directory,
                                                       std::span<const DirectoryEntry> entries,
                                                       const Sizes& sizes);

}  // namespace ckpt::mp_rank

#endif  // CKPT_FORMATS_MP_RANK_INTERNAL_RANK_DIRECTORIES_H_
