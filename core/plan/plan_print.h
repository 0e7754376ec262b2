// A plan as people and scripts read it: `--plan`.
#ifndef CKPT_CORE_PLAN_PLAN_PRINT_H_
#define CKPT_CORE_PLAN_PLAN_PRINT_H_

#include <string>

#include "core/checkpoint/index.h"
#include "core/json/json_writer.h"
#include "core/plan/conversion_plan.h"

namespace ckpt {

// One line a file and a target tensor: its shape, where its bytes go, what it is made of, in how
// many pieces.
std::string PrintPlan(const ConversionPlan& plan, const CheckpointIndex& source);

// The same as members of the object that `json` has open: `files`, `tensors`, `bytes`.
void WritePlanJson(const ConversionPlan& plan, const CheckpointIndex& source, JsonWriter& json);

}  // namespace ckpt

#endif  // CKPT_CORE_PLAN_PLAN_PRINT_H_
