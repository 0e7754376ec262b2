#include "formats/torch_save/internal/whole_paths.h"

#include "core/checkpoint/entry_path_json.h"
#include "core/json/json_reader.h"
#include "core/json/json_writer.h"

namespace ckpt::torch_save {

std::string FormatWholePaths(std::span<const EntryPath> paths) {
  JsonWriter json;
  json.BeginArray();
  for (const EntryPath& path : paths) WriteEntryPath(path, json);
  return json.End().Take();
}

Result<std::vector<EntryPath>> ParseWholePaths(std::string_view text, std::string_view name) {
  CKPT_ASSIGN_OR_RETURN(const JsonDocument document, JsonDocument::Parse(text, name));
  CKPT_ASSIGN_OR_RETURN(const std::vector<JsonCursor> listed, document.root().Items());
  std::vector<EntryPath> paths;
  for (const JsonCursor& place : listed) {
    CKPT_ASSIGN_OR_RETURN(EntryPath path, ReadEntryPath(place));
    paths.push_back(std::move(path));
  }
  return paths;
}

}  // namespace ckpt::torch_save
