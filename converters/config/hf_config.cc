#include "converters/config/hf_config.h"

#include <string>
#include <utility>

#include "core/base/quote.h"
#include "core/base/units.h"
#include "core/json/json_reader.h"

namespace ckpt {
namespace {

using layout::Configuration;
using layout::Value;

// Real files have a few kilobytes.
constexpr JsonLimits kLimits = {.max_bytes = 16 * kMiB, .max_depth = 32};

Result<Value> ToValue(const JsonCursor& json) {
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

Status Flatten(const JsonCursor& object, const std::string& prefix, Configuration& config) {
  CKPT_ASSIGN_OR_RETURN(const auto members, object.Members());
  for (const auto& [key, json] : members) {
    const std::string name = prefix + key;
    if (json.kind() == JsonKind::kObject) {
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

Result<Configuration> ParseHfConfig(std::string_view json, std::string_view name) {
  CKPT_ASSIGN_OR_RETURN(const JsonDocument document, JsonDocument::Parse(json, name, kLimits));
  Configuration config;
  if (Status status = Flatten(document.root(), "", config); !status.ok()) {
    return std::move(status).File(name);
  }
  return config;
}

}  // namespace ckpt
