// What of two checkpoints takes no part in a comparison.
#ifndef CKPT_TOOLS_CKPT_INSPECT_INTERNAL_NOT_COMPARED_H_
#define CKPT_TOOLS_CKPT_INSPECT_INTERNAL_NOT_COMPARED_H_

#include <string>
#include <vector>

#include "converters/verbs/comparison.h"

namespace ckpt::inspect {

// One line each, for people. Names in them are as the checkpoints have them, not escaped.
[[nodiscard]] std::vector<std::string> NotCompared(const Comparison& comparison);

}  // namespace ckpt::inspect

#endif  // CKPT_TOOLS_CKPT_INSPECT_INTERNAL_NOT_COMPARED_H_
