// Which tensors of a plan each of its workers writes: a pure function, which all compute alike.
#ifndef CKPT_CORE_EXEC_WORKER_TENSORS_H_
#define CKPT_CORE_EXEC_WORKER_TENSORS_H_

#include <cstddef>
#include <cstdint>
#include <vector>

#include "core/checkpoint/write_plan.h"

namespace ckpt {

struct WorkerId {
  std::int64_t number = 0;  // from 0
  std::int64_t count = 1;

  friend bool operator==(const WorkerId&, const WorkerId&) = default;
};

// How many workers at most have something to write. One tensor is written by one worker. With
// compression, where an item begins shows when the one before it in its file was written: then one
// worker writes all tensors that share files.
[[nodiscard]] std::size_t CountShares(const WritePlan& plan);

// Which tensors the worker writes, parallel to the plan's: a range of them. The ranges give the
// worker with the most bytes as few as can be, and every worker a tensor if there are enough.
[[nodiscard]] std::vector<bool> TensorsOf(const WritePlan& plan, const WorkerId& worker);

}  // namespace ckpt

#endif  // CKPT_CORE_EXEC_WORKER_TENSORS_H_
