// A directory that holds a run's checkpoints, as Megatron keeps it: iter_0000100/, … and a tracker.
#ifndef CKPT_FORMATS_MEGATRON_ROOT_H_
#define CKPT_FORMATS_MEGATRON_ROOT_H_

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/base/result.h"
#include "core/io/storage.h"

namespace ckpt {

// "iter_0000100".
[[nodiscard]] std::string IterationName(std::int64_t iteration);
// The number in "<prefix>123", if that is what the name is.
[[nodiscard]] std::optional<std::int64_t> NumberAfter(std::string_view prefix,
                                                      std::string_view name);

// The iterations that `root` has directories for, ascending; none if it does not exist.
Result<std::vector<std::int64_t>> ListIterations(Storage& storage, const Path& root);

// Makes the tracker name `iteration`; a reader sees the old one or the new.
Status PointTrackerTo(Storage& storage, const Path& root, std::int64_t iteration);

// Whether the name is that of something a save or a removal was interrupted at: no checkpoint.
[[nodiscard]] bool IsLeftover(std::string_view name);

// Of the iterations up to `newest`, removes all but the last `keep`. Later ones stay: a run that went
// back behind a damaged one must not lose what it saves for it. Each is first renamed: no reader takes
// half of one for a checkpoint, and what an interrupted removal left goes with the next.
Status RemoveOldIterations(Storage& storage, const Path& root, std::int64_t newest,
                           std::int64_t keep);

}  // namespace ckpt

#endif  // CKPT_FORMATS_MEGATRON_ROOT_H_
