#include "core/checkpoint/entry_path_json.h"

#include <algorithm>
#include <cstdint>
#include <utility>
#include <variant>
#include <vector>

#include "core/base/quote.h"

namespace ckpt {
namespace {

constexpr std::string_view kKey = "key";
constexpr std::string_view kAttribute = "attribute";

bool IsJsonText(const std::string* text) { return text == nullptr || IsUtf8(*text); }

void WriteConstant(ConstantKey key, JsonWriter& json) {
  if (key == ConstantKey::kNone) {
    json.Null();
  } else {
    json.Bool(key == ConstantKey::kTrue);
  }
}

// Of a key that is no text.
Result<PathStep> ReadKey(const JsonCursor& json) {
  if (json.is_null()) return PathStep(ConstantKey::kNone);
  if (json.kind() == JsonKind::kBool) {
    CKPT_ASSIGN_OR_RETURN(const bool is_true, json.Bool());
    return PathStep(is_true ? ConstantKey::kTrue : ConstantKey::kFalse);
  }
  CKPT_ASSIGN_OR_RETURN(const std::int64_t number, json.Int64());
  return PathStep(NumberKey{number});
}

}  // namespace

bool HasJson(const EntryPath& path) {
  return std::ranges::all_of(path, [](const PathStep& step) {
    const auto* const attribute = std::get_if<AttributeName>(&step);
    return IsJsonText(std::get_if<std::string>(&step)) &&
           IsJsonText(attribute == nullptr ? nullptr : &attribute->name);
  });
}

void WriteEntryPath(const EntryPath& path, JsonWriter& json) {
  json.BeginArray();
  for (const PathStep& step : path) {
    if (const auto* const text = std::get_if<std::string>(&step)) {
      json.Text(*text);
    } else if (const auto* const key = std::get_if<NumberKey>(&step)) {
      json.BeginObject().Key(kKey).Int(key->number).End();
    } else if (const auto* const constant = std::get_if<ConstantKey>(&step)) {
      json.BeginObject().Key(kKey);
      WriteConstant(*constant, json);
      json.End();
    } else if (const auto* const attribute = std::get_if<AttributeName>(&step)) {
      json.BeginObject().Key(kAttribute).Text(attribute->name).End();
    } else {
      json.Int(std::get<std::int64_t>(step));
    }
  }
  json.End();
}

std::string FormatEntryPath(const EntryPath& path) {
  JsonWriter json;
  WriteEntryPath(path, json);
  return json.Take();
}

Result<EntryPath> ReadEntryPath(const JsonCursor& json) {
  CKPT_ASSIGN_OR_RETURN(const std::vector<JsonCursor> steps, json.Items());
  EntryPath path;
  for (const JsonCursor& step : steps) {
    if (step.kind() == JsonKind::kText) {
      CKPT_ASSIGN_OR_RETURN(std::string key, step.Text());
      path.emplace_back(std::move(key));
    } else if (step.kind() == JsonKind::kObject) {
      CKPT_ASSIGN_OR_RETURN(const auto members, step.Members());
      if (members.size() != 1) {
        return Error(ErrorKind::kBadMetadata, "a step has other members than its key")
            .Actual("at " + step.where());
      }
      if (members.front().first == kAttribute) {
        CKPT_ASSIGN_OR_RETURN(std::string name, members.front().second.Text());
        path.emplace_back(AttributeName{std::move(name)});
        continue;
      }
      CKPT_ASSIGN_OR_RETURN(const JsonCursor key, step.At(kKey));
      CKPT_ASSIGN_OR_RETURN(path.emplace_back(), ReadKey(key));
    } else {
      CKPT_ASSIGN_OR_RETURN(const std::int64_t position, step.Int64());
      path.emplace_back(position);
    }
  }
  return path;
}

}  // namespace ckpt
