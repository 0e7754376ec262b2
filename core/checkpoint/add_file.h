// A file of known content in a plan.
#ifndef CKPT_CORE_CHECKPOINT_ADD_FILE_H_
#define CKPT_CORE_CHECKPOINT_ADD_FILE_H_

#include <string>
#include <string_view>

#include "core/base/bytes.h"
#include "core/checkpoint/write_plan.h"

namespace ckpt {

// Adds it behind the plan's files.
void AddFile(std::string name, Bytes content, WritePlan& plan);
void AddTextFile(std::string name, std::string_view content, WritePlan& plan);

}  // namespace ckpt

#endif  // CKPT_CORE_CHECKPOINT_ADD_FILE_H_
