// Runs independent tasks on a few threads, and stops at the first failure.
#ifndef CKPT_CORE_BASE_TASK_POOL_H_
#define CKPT_CORE_BASE_TASK_POOL_H_

#include <cstddef>
#include <functional>
#include <stop_token>

#include "core/base/status.h"

namespace ckpt {

// The number of threads to use if the caller gave none: the cores that this process may use.
[[nodiscard]] int DefaultThreads();

// Calls `run(task, worker)` for every task in [0, num_tasks), starting them in ascending order, on
// `threads` workers numbered from 0 (the calling thread is worker 0). Returns when all have ended.
//
// After a failure no new task starts. The result is the failure of the lowest-numbered task, so
// that it depends on timing as little as possible. If a task throws, that is its failure: kSystem
// if memory ran out, else kInternal. If the system refuses threads, fewer threads do the work.
// `stop` ends the work early with kCancelled.
Status RunTasks(std::size_t num_tasks, int threads, std::stop_token stop,
                const std::function<Status(std::size_t task, std::size_t worker)>& run);

}  // namespace ckpt

#endif  // CKPT_CORE_BASE_TASK_POOL_H_
