#include "formats/torch_save/internal/whole_paths.h"

#include <cstdint>
#include <utility>
#include <variant>

#include "core/json/json_reader.h"
#include "core/json/json_writer.h"

namespace ckpt::torch_save {

std::string FormatWholePaths(std::span<const EntryPath> paths) {
  JsonWriter json;
  json.BeginArray();
  for (const EntryPath& path : paths) {
    json.BeginArray();
    for (const PathStep& step : path) {
      if (const auto* const text = std::get_if<std::string>(&step)) {
        json.Text(*text);
      } else if (const auto* const key = std::get_if<NumberKey>(&step)) {
        json.Int(key->number);
      } else {
        json.Int(std::get<std::int64_t>(step));
      }
    }
    json.End();
  }
  return json.End().Take();
}

Result<std::vector<EntryPath>> ParseWholePaths(std::string_view text, std::string_view name) {
  CKPT_ASSIGN_OR_RETURN(const JsonDocument document, JsonDocument::Parse(text, name));
  CKPT_ASSIGN_OR_RETURN(const std::vector<JsonCursor> listed, document.root().Items());
  std::vector<EntryPath> paths;
  for (const JsonCursor& place : listed) {
    CKPT_ASSIGN_OR_RETURN(const std::vector<JsonCursor> steps, place.Items());
    EntryPath& path = paths.emplace_back();
    for (const JsonCursor& step : steps) {
      if (step.kind() == JsonKind::kText) {
        CKPT_ASSIGN_OR_RETURN(std::string key, step.Text());
        path.emplace_back(std::move(key));
      } else {
        CKPT_ASSIGN_OR_RETURN(const std::int64_t number, step.Int64());
        path.emplace_back(number);
      }
    }
  }
  return paths;
}

}  // namespace ckpt::torch_save
