// A directory that holds a run's checkpoints, as Megatron keeps it: iter_0000100/, … and a tracker.
#ifndef CKPT_FORMATS_MEGATRON_ROOT_H_
#define CKPT_FORMATS_MEGATRON_ROOT_H_

#include <cstdint>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "core/base/result.h"
#include "core/io/storage.h"
#include "core/manifest/run_root.h"

namespace ckpt::megatron {

// The file in a root that names the checkpoint to resume: an iteration, or kReleaseDirectory.
inline constexpr std::string_view kTrackerName = "latest_checkpointed_iteration.txt";
// The directory of weights that come from no run.
inline constexpr std::string_view kReleaseDirectory = "release";

// The convention, for what checks and replaces checkpoints.
extern const RunRoot kRunRoot;

// "iter_0000100".
[[nodiscard]] std::string IterationName(std::int64_t iteration);
// 100 of "iter_0000100", nothing of another name.
[[nodiscard]] std::optional<std::int64_t> IterationOf(std::string_view name);
// The number in "<prefix>123", if that is what the name is.
[[nodiscard]] std::optional<std::int64_t> NumberAfter(std::string_view prefix,
                                                      std::string_view name);

// The iterations that `root` has directories for, ascending; none if it is no directory.
Result<std::vector<std::int64_t>> ListIterations(Storage& storage, const Path& root);

// The name of the directory that the tracker of `root` names: kReleaseDirectory or that of an
// iteration. Without a tracker, latest_train_state.pt says it, which is all that the first versions
// of Megatron-Bridge wrote. Errors: kBadMetadata (it names neither), kIo, those of torch files.
Result<std::string> ReadTracker(Storage& storage, const Path& root);

// Makes the tracker name `iteration`, and latest_train_state.pt be its train state, or not be
// there; a reader sees the old of each or the new.
Status PointTrackerTo(Storage& storage, const Path& root, std::int64_t iteration);

// Whether the name belongs to the rest of an interrupted save or removal, which is no checkpoint.
[[nodiscard]] bool IsLeftover(std::string_view name);

struct Retention {
  // Later iterations are not touched. A run that skipped a damaged checkpoint resumed from an
  // earlier iteration; its new checkpoints must not be removed in favour of the damaged one.
  std::int64_t newest = 0;
  std::int64_t keep = 1;
  // Damaged iterations, from which no run can resume. They are not removed either, so that they can
  // be repaired.
  std::set<std::int64_t> not_counted = {};
};

// Of the iterations up to `newest` that count, hides all but the last `keep`: each gets a name that
// no reader takes for a checkpoint. Costs no more than the renames.
Status HideOldIterations(Storage& storage, const Path& root, const Retention& retention);
// Removes what was hidden, also by a run that was interrupted before it removed it.
Status RemoveHidden(Storage& storage, const Path& root);

}  // namespace ckpt::megatron

#endif  // CKPT_FORMATS_MEGATRON_ROOT_H_
