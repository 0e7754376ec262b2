#include "core/layout/flatten_json.h"

#include <cmath>
#include <limits>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "core/base/quote.h"
#include "core/base/units.h"
#include "core/json/json_reader.h"

namespace ckpt::layout {
namespace {

// Real files have a few kilobytes.
constexpr JsonLimits kLimits = {.max_bytes = 16 * kMiB, .max_depth = 32};

// The key with which transformers 5 wraps a number that JSON lacks.
constexpr std::string_view kFloatTag = "__float__";

// The number in a tag; nothing for other values, and if the object has other members too.
std::optional<double> TaggedFloat(const JsonCursor& json) {
  const std::optional<JsonCursor> tag = json.Find(kFloatTag);
  if (!tag || tag->kind() != JsonKind::kText) return std::nullopt;
  if (const auto members = json.Members(); !members.ok() || members->size() != 1) {
    return std::nullopt;
  }
  const std::string text = tag->Text().value();
  if (text == "NaN") return std::nan("");
  if (text == "Infinity") return std::numeric_limits<double>::infinity();
  if (text == "-Infinity") return -std::numeric_limits<double>::infinity();
  return std::nullopt;
}

// Python's json module writes and reads NaN, Infinity and -Infinity, which JSON lacks. Each is
// wrapped in the tag.
std::string TagPythonFloats(std::string_view json) {
  std::string tagged;
  bool is_text = false;
  for (std::size_t at = 0; at < json.size();) {
    const std::string_view rest = json.substr(at);
    std::string_view number;
    for (const std::string_view word : {"NaN", "Infinity", "-Infinity"}) {
      if (!is_text && rest.starts_with(word)) number = word;
    }
    if (!number.empty()) {
      tagged.append("{\"").append(kFloatTag).append("\":\"").append(number).append("\"}");
      at += number.size();
      continue;
    }
    const std::size_t size = is_text && rest.front() == '\\' && rest.size() > 1 ? 2 : 1;
    if (rest.front() == '"') is_text = !is_text;
    tagged.append(rest.substr(0, size));
    at += size;
  }
  return tagged;
}

Status Flatten(const JsonCursor& object, const std::string& prefix, Configuration& config) {
  CKPT_ASSIGN_OR_RETURN(const auto members, object.Members());
  for (const auto& [key, json] : members) {
    const std::string name = prefix + key;
    if (json.kind() == JsonKind::kObject && !TaggedFloat(json)) {
      if (json.Find(kFloatTag)) {
        return Error(ErrorKind::kBadMetadata,
                     "a tagged number has other members next to it, or is not a number")
            .Expected("{\"__float__\": \"NaN\"}, or Infinity, or -Infinity")
            .Actual(Quote(name));
      }
      CKPT_RETURN_IF_ERROR(Flatten(json, name + ".", config));
      continue;
    }
    CKPT_ASSIGN_OR_RETURN(Value value, ToValue(json));
    if (!config.emplace(name, std::move(value)).second) {
      return Error(ErrorKind::kBadMetadata, "two keys have the same dotted name")
          .Actual(Quote(name));
    }
  }
  return OkStatus();
}

}  // namespace

Result<Value> ToValue(const JsonCursor& json) {
  if (const std::optional<double> number = TaggedFloat(json)) return Value(*number);
  switch (json.kind()) {
    case JsonKind::kNull:
    case JsonKind::kObject:
      return Value();
    case JsonKind::kBool: {
      CKPT_ASSIGN_OR_RETURN(const bool value, json.Bool());
      return Value(value);
    }
    case JsonKind::kInt:
    case JsonKind::kUint: {
      if (const Result<std::int64_t> value = json.Int64(); value.ok()) return Value(*value);
      CKPT_ASSIGN_OR_RETURN(const double value, json.Double());
      return Value(value);
    }
    case JsonKind::kFloat: {
      CKPT_ASSIGN_OR_RETURN(const double value, json.Double());
      return Value(value);
    }
    case JsonKind::kText: {
      CKPT_ASSIGN_OR_RETURN(std::string value, json.Text());
      return Value(std::move(value));
    }
    case JsonKind::kArray: {
      CKPT_ASSIGN_OR_RETURN(const std::vector<JsonCursor> items, json.Items());
      Value::List list;
      for (const JsonCursor& item : items) {
        CKPT_ASSIGN_OR_RETURN(Value value, ToValue(item));
        list.push_back(std::move(value));
      }
      return Value(std::move(list));
    }
  }
  return Value();
}

Result<Configuration> FlattenJson(std::string_view json, std::string_view name) {
  CKPT_ASSIGN_OR_RETURN(const JsonDocument document,
                        JsonDocument::Parse(TagPythonFloats(json), name, kLimits));
  Configuration config;
  if (Status status = Flatten(document.root(), "", config); !status.ok()) {
    return std::move(status).File(name);
  }
  return config;
}

}  // namespace ckpt::layout
