// The names that verl gives to the files of a worker's ranks.
#ifndef CKPT_FORMATS_VERL_INTERNAL_RANK_FILES_H_
#define CKPT_FORMATS_VERL_INTERNAL_RANK_FILES_H_

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/base/result.h"
#include "core/io/storage.h"

namespace ckpt::verl {

// `<state>_world_size_<W>_rank_<R>.pt`.
struct RankFile {
  std::string_view state;  // "model", "optim", "extra_state"
  std::int64_t world_size = 0;
  std::int64_t rank = 0;
};
[[nodiscard]] std::optional<RankFile> ParseRankFile(std::string_view name);
[[nodiscard]] bool IsModelFile(std::string_view name);

// `state`'s files of a world of ranks, by rank; none if no rank has one. Errors: kMissingFile (of
// some ranks; these are named).
Result<std::vector<std::string>> FindStateFiles(std::string_view state, std::size_t world_size,
                                                std::span<const DirectoryEntry> entries);

// The model's file of each rank, by rank. Errors: kMissingFile (of some ranks; all are named),
// kBadMetadata (files of several world sizes, a rank past its world).
Result<std::vector<std::string>> FindModelFiles(const Path& directory,
                                                std::span<const DirectoryEntry> entries);

}  // namespace ckpt::verl

#endif  // CKPT_FORMATS_VERL_INTERNAL_RANK_FILES_H_
