// Prints a plan for people and for scripts: `--plan`.
#ifndef CKPT_CORE_PLAN_PLAN_PRINT_H_
#define CKPT_CORE_PLAN_PLAN_PRINT_H_

#include <string>

#include "core/checkpoint/index.h"
#include "core/json/json_writer.h"
#include "core/plan/conversion_plan.h"

namespace ckpt {

// One line per file and per target tensor: its shape, where its bytes go, which tensors it is made
// from, and in how many pieces.
std::string PrintPlan(const ConversionPlan& plan, const CheckpointIndex& source);

// Writes the same as members of the object that `json` has open: `files`, `tensors`, `bytes`.
void WritePlanJson(const ConversionPlan& plan, const CheckpointIndex& source, JsonWriter& json);

}  // namespace ckpt

#endif  // CKPT_CORE_PLAN_PLAN_PRINT_H_
