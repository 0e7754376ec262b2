#include "core/json/json_copy.h"

#include <string>
#include <vector>

namespace ckpt {

Status CopyJson(const JsonCursor& value, JsonWriter& json) {
  switch (value.kind()) {
    case JsonKind::kNull:
      json.Null();
      return OkStatus();
    case JsonKind::kBool: {
      CKPT_ASSIGN_OR_RETURN(const bool flag, value.Bool());
      json.Bool(flag);
      return OkStatus();
    }
    case JsonKind::kInt: {
      CKPT_ASSIGN_OR_RETURN(const std::int64_t number, value.Int64());
      json.Int(number);
      return OkStatus();
    }
    case JsonKind::kUint: {
      CKPT_ASSIGN_OR_RETURN(const std::uint64_t number, value.Uint64());
      json.Int(number);
      return OkStatus();
    }
    case JsonKind::kFloat: {
      CKPT_ASSIGN_OR_RETURN(const double number, value.Double());
      json.Double(number);
      return OkStatus();
    }
    case JsonKind::kText: {
      CKPT_ASSIGN_OR_RETURN(const std::string text, value.Text());
      json.Text(text);
      return OkStatus();
    }
    case JsonKind::kArray: {
      CKPT_ASSIGN_OR_RETURN(const std::vector<JsonCursor> items, value.Items());
      json.BeginArray();
      for (const JsonCursor& item : items) CKPT_RETURN_IF_ERROR(CopyJson(item, json));
      json.End();
      return OkStatus();
    }
    case JsonKind::kObject: {
      CKPT_ASSIGN_OR_RETURN(const auto members, value.Members());
      json.BeginObject();
      for (const auto& [name, member] : members) {
        json.Key(name);
        CKPT_RETURN_IF_ERROR(CopyJson(member, json));
      }
      json.End();
      return OkStatus();
    }
  }
  return OkStatus();
}

}  // namespace ckpt
