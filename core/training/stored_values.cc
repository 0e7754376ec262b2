#include "core/training/stored_values.h"

#include <string>
#include <utility>

#include "core/json/json_reader.h"
#include "core/layout/flatten_json.h"

namespace ckpt {
namespace {

// The name of a member, without the part that says how Python wrapped its value
// (docs/formats/objects.md).
std::string_view PlainName(std::string_view name) {
  for (const std::string_view wrapping : {".$tuple", ".$dtype"}) {
    if (name.ends_with(wrapping)) return name.substr(0, name.size() - wrapping.size());
  }
  return name;
}

}  // namespace

Result<std::int64_t> ReadStoredInteger(const CheckpointSource& source, std::string_view key) {
  const ObjectEntry* entry = source.index().FindObject(key);
  if (entry == nullptr) {
    return Error(ErrorKind::kMissing, "the checkpoint has no such object").Tensor(key);
  }
  CKPT_ASSIGN_OR_RETURN(const RenderedObject object, source.ReadObject(*entry));
  CKPT_ASSIGN_OR_RETURN(const JsonDocument json, JsonDocument::Parse(object.json, key));
  Result<std::int64_t> value = json.root().Int64();
  if (!value.ok()) return std::move(value).status().Tensor(key);
  return value;
}

Result<layout::Configuration> ReadStoredMembers(const CheckpointSource& source,
                                                std::string_view key, std::string_view prefix) {
  layout::Configuration members;
  const ObjectEntry* entry = source.index().FindObject(key);
  if (entry == nullptr) return members;
  CKPT_ASSIGN_OR_RETURN(const RenderedObject object, source.ReadObject(*entry));
  CKPT_ASSIGN_OR_RETURN(const layout::Configuration flattened,
                        layout::FlattenJson(object.json, key));
  for (const auto& [name, value] : flattened) {
    if (!name.starts_with(prefix)) continue;
    members[std::string(PlainName(name).substr(prefix.size()))] = value;
  }
  return members;
}

}  // namespace ckpt
