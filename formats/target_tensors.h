// What every planner of a new checkpoint checks of its tensors.
#ifndef CKPT_FORMATS_TARGET_TENSORS_H_
#define CKPT_FORMATS_TARGET_TENSORS_H_

#include <cstdint>
#include <span>
#include <vector>

#include "core/base/result.h"
#include "core/checkpoint/memory_source.h"
#include "core/checkpoint/write_plan.h"

namespace ckpt {

// The bytes of all elements. Errors, of all tensors at once: kAlreadyExists (two of one key); those
// of CountBytes, kResource (no file can be so long).
Result<std::uint64_t> CountTargetBytes(std::span<const TargetTensor> tensors);

// For WritePlan::known_tensors.
[[nodiscard]] std::vector<TargetTensor> DescribeKnown(std::span<const MemoryTensor> tensors);

}  // namespace ckpt

#endif  // CKPT_FORMATS_TARGET_TENSORS_H_
