#include "tools/ckpt-inspect/held_tensors.h"

#include <map>
#include <string_view>

#include <fmt/format.h>

#include "core/base/quote.h"

namespace ckpt::inspect {

void AppendHeld(const std::vector<HeldTensor>& held, JsonWriter& json) {
  if (held.empty()) return;
  json.Key("tensors").BeginObject();
  // Parts of an object without names give several tensors the same path: the second one is
  // `path#2`.
  std::map<std::string_view, int> times;
  for (const HeldTensor& tensor : held) {
    const int time = ++times[tensor.path];
    json.Key(time == 1 ? tensor.path : fmt::format("{}#{}", tensor.path, time)).BeginObject();
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
