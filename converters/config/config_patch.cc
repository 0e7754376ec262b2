#include "converters/config/config_patch.h"

namespace ckpt {
namespace {

// The position after the JSON string that starts at `at`, its closing quote included.
std::size_t EndOfString(std::string_view json, std::size_t at) {
  for (++at; at < json.size() && json[at] != '"'; ++at) {
    if (json[at] == '\\') ++at;
  }
  return at + 1;
}

std::size_t SkipSpace(std::string_view json, std::size_t at) {
  while (at < json.size() && std::string_view(" \t\r\n").find(json[at]) != std::string_view::npos) {
    ++at;
  }
  return at;
}

}  // namespace

std::string ReplaceTextValue(std::string_view json, std::string_view key, std::string_view value) {
  const std::string quoted_key = "\"" + std::string(key) + "\"";
  int depth = 0;
  for (std::size_t at = 0; at < json.size();) {
    const char c = json[at];
    if (c == '{' || c == '[') ++depth;
    if (c == '}' || c == ']') --depth;
    if (c != '"') {
      ++at;
      continue;
    }
    const std::size_t end = EndOfString(json, at);
    const std::size_t colon = SkipSpace(json, end);
    const bool is_key = depth == 1 && colon < json.size() && json[colon] == ':' &&
                        json.substr(at, end - at) == quoted_key;
    if (is_key) {
      const std::size_t begin = SkipSpace(json, colon + 1);
      if (begin >= json.size() || json[begin] != '"') break;
      const std::size_t behind = EndOfString(json, begin);
      return std::string(json.substr(0, begin)) + "\"" + std::string(value) + "\"" +
             std::string(json.substr(behind));
    }
    at = end;
  }
  return std::string(json);
}

std::string DescribeDtype(std::string_view json, DType dtype) {
  const std::string patched = ReplaceTextValue(json, "dtype", DTypeName(dtype));
  return ReplaceTextValue(patched, "torch_dtype", DTypeName(dtype));
}

}  // namespace ckpt
