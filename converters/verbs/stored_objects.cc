#include "converters/verbs/stored_objects.h"

#include <string>
#include <utility>

#include "converters/config/hf_config.h"
#include "core/json/json_reader.h"

namespace ckpt {
namespace {

// The name of a member without what says how Python wrapped its value (docs/formats/objects.md).
std::string_view PlainName(std::string_view name) {
  for (const std::string_view wrapping : {".$tuple", ".$dtype"}) {
    if (name.ends_with(wrapping)) return name.substr(0, name.size() - wrapping.size());
  }
  return name;
}

}  // namespace

Result<layout::Configuration> ReadMegatronArgs(const CheckpointSource& source) {
  struct Place {
    std::string_view object;
    std::string_view prefix;  // of the members' flattened names in the rendered object
  };
  layout::Configuration args;
  for (const Place& place :
       {Place{"args", "$object.state."}, Place{"common_state", "args.$object.state."}}) {
    const ObjectEntry* entry = source.index().FindObject(place.object);
    if (entry == nullptr) continue;
    CKPT_ASSIGN_OR_RETURN(const RenderedObject object, source.ReadObject(*entry));
    CKPT_ASSIGN_OR_RETURN(const layout::Configuration members,
                          FlattenJson(object.json, place.object));
    for (const auto& [name, value] : members) {
      if (!name.starts_with(place.prefix)) continue;
      args[std::string(PlainName(name).substr(place.prefix.size()))] = value;
    }
    break;
  }
  return args;
}

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

}  // namespace ckpt
