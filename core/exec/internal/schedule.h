// How many threads write the tensors of a plan, and which of them one thread writes.
#ifndef CKPT_CORE_EXEC_INTERNAL_SCHEDULE_H_
#define CKPT_CORE_EXEC_INTERNAL_SCHEDULE_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <set>
#include <vector>

#include "core/base/result.h"
#include "core/base/units.h"
#include "core/checkpoint/source.h"
#include "core/plan/conversion_plan.h"

namespace ckpt {

// A processor's cache holds a window from the read over its checksums to the write.
inline constexpr std::uint64_t kMaxWindowBytes = kMiB;
// Of a thread: as read, as cast, and two to write it.
inline constexpr std::uint64_t kNumWindows = 4;

// Positions in the plan's tensors: one thread writes these one after the other.
using Batch = std::vector<std::size_t>;

// All tensors, in the order of the plan. Threads that each write the next tensor read what lies in
// one tensor of the source by turns. What shall be read in order (positions in the source's index)
// goes to one thread.
[[nodiscard]] std::vector<Batch> CutIntoBatches(const ConversionPlan& plan,
                                                const std::set<std::uint32_t>& read_in_order,
                                                std::size_t threads);

// How many threads write tensors, of a caller that asked for `threads` and divides the budget among
// them. `writes`: whether an item of the plan is written. Reads nothing. Errors: kCoverage.
Result<std::size_t> CountWorkers(const ConversionPlan& plan, const CheckpointSource& source,
                                 std::uint64_t budget_bytes, int threads,
                                 const std::function<bool(std::size_t item)>& writes);

}  // namespace ckpt

#endif  // CKPT_CORE_EXEC_INTERNAL_SCHEDULE_H_
