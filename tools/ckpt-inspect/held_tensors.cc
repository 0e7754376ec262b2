#include "tools/ckpt-inspect/held_tensors.h"

#include <fmt/format.h>

#include "core/base/quote.h"

namespace ckpt::inspect {

void AppendHeld(const std::vector<HeldTensor>& held, JsonWriter& json) {
  if (held.empty()) return;
  json.Key("tensors").BeginObject();
  for (const HeldTensor& tensor : held) {
    json.Key(tensor.path).BeginObject();
    json.Key("shape").Ints(tensor.shape);
    json.Key("dtype").Text(DTypeName(tensor.dtype));
    json.Key("sha256").Text(tensor.sha256).End();
  }
  json.End();
}

std::string DescribeHeld(const std::vector<HeldTensor>& held) {
  std::string text;
  for (const HeldTensor& tensor : held) {
    text += fmt::format("  {}  {}{}  sha256 {}\n", EscapeControls(tensor.path),
                        DTypeName(tensor.dtype), FormatDims(tensor.shape), tensor.sha256);
  }
  return text;
}

}  // namespace ckpt::inspect
