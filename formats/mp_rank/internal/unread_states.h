// What the ranks saved and this program does not read.
#ifndef CKPT_FORMATS_MP_RANK_INTERNAL_UNREAD_STATES_H_
#define CKPT_FORMATS_MP_RANK_INTERNAL_UNREAD_STATES_H_

#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

#include "core/base/result.h"
#include "core/io/storage.h"
#include "formats/mp_rank/internal/rank_directories.h"
#include "formats/torch_save/rank_set.h"

namespace ckpt::mp_rank {

// Whether every rank has a value of its own of this member of its file.
[[nodiscard]] bool IsOwnState(std::string_view member);

// A warning that names these states, scaling states of that many bytes, and files in the ranks'
// directories that are not of the set, with their bytes; nothing if there are none. Errors: those
// of Storage::List and Stat.
Result<std::optional<Problem>> WarnOfUnread(Storage& storage, const Path& directory,
                                            const std::vector<RankDirectory>& ranks,
                                            const torch_save::RankSet& set,
                                            std::uint64_t extra_state_bytes, bool has_optimizer);

}  // namespace ckpt::mp_rank

#endif  // CKPT_FORMATS_MP_RANK_INTERNAL_UNREAD_STATES_H_
