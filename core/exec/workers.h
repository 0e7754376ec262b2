// Processes that carry out one plan without talking to each other, on one disk. Each writes some of
// the tensors; then one more completes the target.
//
// In the target's staging directory, each worker has a directory of its own with a journal of what
// it wrote. To complete the target is to resume a conversion whose journal is all of theirs.
#ifndef CKPT_CORE_EXEC_WORKERS_H_
#define CKPT_CORE_EXEC_WORKERS_H_

#include <cstdint>
#include <memory>
#include <string_view>
#include <vector>

#include "core/base/result.h"
#include "core/io/made_directories.h"
#include "core/io/storage.h"
#include "core/plan/conversion_plan.h"

namespace ckpt {

struct WorkerId {
  std::int64_t number = 0;  // from 0
  std::int64_t count = 1;

  friend bool operator==(const WorkerId&, const WorkerId&) = default;
};

// "3/8": worker 3 of 0 to 7. Errors: kUsage.
Result<WorkerId> ParseWorkerId(std::string_view text);

// How many workers at most have something to write. One tensor is written by one worker. With
// compression, where an item begins shows when the one before it in its file was written: then one
// worker writes all tensors that share files.
[[nodiscard]] std::size_t CountShares(const WritePlan& plan);

// Which tensors the worker writes, parallel to the plan's: a range of them. The ranges give the
// worker with the most bytes as few as can be, and every worker a tensor if there are enough.
[[nodiscard]] std::vector<bool> TensorsOf(const WritePlan& plan, const WorkerId& worker);

// A worker's place in a staging directory, while it writes.
struct WorkerPlace {
  MadeDirectories directories;  // removed again if nothing was written
  std::unique_ptr<DirectoryLock> lock;
  Path journal;  // relative to the staging directory
};

// Makes the staging directory and the worker's own, unless they exist. Errors: kAlreadyExists (the
// same worker is running or has finished; workers of another number, or no workers, wrote here),
// kValueMismatch (the worker wrote another plan here), kIo, kNoSpace.
Result<WorkerPlace> EnterAsWorker(Storage& storage, const Path& staging, const WorkerId& worker,
                                  const ConversionPlan& plan);

// The error of a staging directory that no worker has written into.
[[nodiscard]] Status NoWorkers(const Path& staging);

// Whether workers wrote into a staging directory, which need not exist.
Result<bool> HasWorkers(Storage& storage, const Path& staging);

// Makes one journal of those of all workers, so that Execute with `resume` goes on from there. A
// call that was interrupted can be repeated. Errors: kMissing (no worker wrote here, or some did
// not), kIncomplete (some have not finished), kAlreadyExists (one still writes), kValueMismatch
// (one had another source or other options). They name the workers.
Status MergeWorkers(Storage& storage, const Path& staging, const ConversionPlan& plan);

}  // namespace ckpt

#endif  // CKPT_CORE_EXEC_WORKERS_H_
