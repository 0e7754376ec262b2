// Processes that carry out one plan without talking to each other, on one disk. Each writes some of
// the tensors; then one more completes the target.
//
// In the target's staging directory, each worker has a directory of its own with a journal of what
// it wrote. To complete the target is to resume a conversion whose journal is all of theirs.
#ifndef CKPT_CORE_EXEC_WORKERS_H_
#define CKPT_CORE_EXEC_WORKERS_H_

#include <memory>
#include <string_view>

#include "core/base/result.h"
#include "core/exec/worker_tensors.h"
#include "core/io/made_directories.h"
#include "core/io/storage.h"
#include "core/plan/conversion_plan.h"

namespace ckpt {

// "3/8": worker 3 of 0 to 7. Errors: kUsage.
Result<WorkerId> ParseWorkerId(std::string_view text);

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
