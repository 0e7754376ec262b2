// Independent tasks on a few threads, stopped by the first failure.
#ifndef CKPT_CORE_EXEC_TASK_POOL_H_
#define CKPT_CORE_EXEC_TASK_POOL_H_

#include <cstddef>
#include <functional>
#include <stop_token>

#include "core/base/status.h"

namespace ckpt {

// Threads to use where the caller named none: the cores this process may run on.
[[nodiscard]] int DefaultThreads();

// Calls `run(task, worker)` for every task in [0, num_tasks), in ascending order of start, on
// `threads` workers numbered from 0 (the calling thread is worker 0). Returns when all have ended.
//
// After a failure no new task starts; the result is the failure of the lowest-numbered task, so
// that it does not depend on timing more than it must. What a task throws is its failure:
// kSystem for memory that ran out, else kInternal. Where the system refuses threads, fewer do the
// work. `stop` ends the work early with kCancelled.
Status RunTasks(std::size_t num_tasks, int threads, std::stop_token stop,
                const std::function<Status(std::size_t task, std::size_t worker)>& run);

}  // namespace ckpt

#endif  // CKPT_CORE_EXEC_TASK_POOL_H_
