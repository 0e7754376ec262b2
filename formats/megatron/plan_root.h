// What every planner of a checkpoint in a Megatron root adds to its own files.
#ifndef CKPT_FORMATS_MEGATRON_PLAN_ROOT_H_
#define CKPT_FORMATS_MEGATRON_PLAN_ROOT_H_

#include <string_view>
#include <vector>

#include "core/checkpoint/write_plan.h"

namespace ckpt::megatron {

// Copies of `files` behind `directory`, which ends with a slash.
void AddCopies(const std::vector<WriteCopy>& files, std::string_view directory, WritePlan& plan);

// The tracker of a root whose only checkpoint is `directory`: "release" or "iter_0000100".
void AddTracker(std::string_view directory, WritePlan& plan);

}  // namespace ckpt::megatron

#endif  // CKPT_FORMATS_MEGATRON_PLAN_ROOT_H_
