#include "formats/mp_rank/format.h"

#include <algorithm>
#include <optional>

#include "formats/mp_rank/internal/rank_directories.h"
#include "formats/mp_rank/internal/source.h"

namespace ckpt::mp_rank {
namespace {

Result<std::optional<Path>> Recognise(const Place& place) {
  const bool is_ours =
      place.is_directory &&
      std::ranges::any_of(place.names.entries(), [](const DirectoryEntry& entry) {
        return entry.type == FileType::kDirectory && ParseRankDirectory(entry.name).has_value();
      });
  return is_ours ? std::optional(place.path) : std::nullopt;
}

}  // namespace

constinit const Format kFormat = {.name = "mp_rank",
                                  .usual_naming = "mp_rank",
                                  .directory_signs = "mp_rank_*",
                                  .recognise = &Recognise,
                                  .open = &OpenSource};

}  // namespace ckpt::mp_rank
