#include "converters/config/config_patch.h"

#include <optional>

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

// Where a top-level member lies in a text.
struct Member {
  std::size_t begin = 0;  // of its key
  std::size_t value = 0;
};

std::optional<Member> FindMember(std::string_view json, std::string_view key) {
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
    if (is_key) return Member{.begin = at, .value = SkipSpace(json, colon + 1)};
    at = end;
  }
  return std::nullopt;
}

// The position after the value that starts at `at`: of the comma or brace behind it.
std::size_t EndOfValue(std::string_view json, std::size_t at) {
  std::size_t end = at;  // behind its last character that is no space
  for (int depth = 0; at < json.size();) {
    const char c = json[at];
    const bool closes = c == '}' || c == ']';
    if (depth == 0 && (closes || c == ',')) break;
    if (c == '{' || c == '[') ++depth;
    if (closes) --depth;
    at = c == '"' ? EndOfString(json, at) : at + 1;
    if (SkipSpace(json, at - 1) == at - 1) end = at;
  }
  return end;
}

}  // namespace

std::string ReplaceTextValue(std::string_view json, std::string_view key, std::string_view value) {
  const std::optional<Member> member = FindMember(json, key);
  const bool is_text = member && member->value < json.size() && json[member->value] == '"';
  if (!is_text) return std::string(json);
  const std::size_t behind = EndOfString(json, member->value);
  return std::string(json.substr(0, member->value)) + "\"" + std::string(value) + "\"" +
         std::string(json.substr(behind));
}

std::string RemoveMember(std::string_view json, std::string_view key) {
  const std::optional<Member> member = FindMember(json, key);
  if (!member) return std::string(json);
  std::size_t begin = member->begin;
  std::size_t end = EndOfValue(json, member->value);
  const std::size_t next = SkipSpace(json, end);
  if (next < json.size() && json[next] == ',') {
    end = SkipSpace(json, next + 1);
  } else {
    // The last one goes with the comma before it, if it is not the only one.
    begin = json.find_last_not_of(" \t\r\n", begin - 1);
    if (json[begin] != ',') ++begin;
  }
  return std::string(json.substr(0, begin)) + std::string(json.substr(end));
}

std::string DescribeDtype(std::string_view json, DType dtype) {
  const std::string patched = ReplaceTextValue(json, "dtype", DTypeName(dtype));
  return ReplaceTextValue(patched, "torch_dtype", DTypeName(dtype));
}

}  // namespace ckpt
