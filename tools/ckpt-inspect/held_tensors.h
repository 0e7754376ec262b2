// Tensors inside an object that its printed value does not show.
#ifndef CKPT_TOOLS_CKPT_INSPECT_HELD_TENSORS_H_
#define CKPT_TOOLS_CKPT_INSPECT_HELD_TENSORS_H_

#include <string>
#include <vector>

#include "core/checkpoint/source.h"
#include "core/json/json_writer.h"

namespace ckpt::inspect {

// "tensors": {path: {"shape", "dtype", "sha256"}}; nothing if there are none.
void AppendHeld(const std::vector<HeldTensor>& held, JsonWriter& json);

// One line for each: "  path  float32[3, 4]  sha256".
[[nodiscard]] std::string DescribeHeld(const std::vector<HeldTensor>& held);

}  // namespace ckpt::inspect

#endif  // CKPT_TOOLS_CKPT_INSPECT_HELD_TENSORS_H_
