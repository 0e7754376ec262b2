#include "formats/megatron/object_fields.h"

#include <algorithm>
#include <span>

#include <fmt/format.h>

#include "core/json/json_reader.h"
#include "core/training/run_settings.h"

namespace ckpt::megatron {

std::vector<ObjectField> ScheduleFields(const RunSchedule& schedule) {
  std::vector<ObjectField> fields;
  VisitSchedule(schedule, AddFields{fields});
  return fields;
}

bool ObjectFields::Has(std::string_view name) const {
  return source_.index().FindObject(Where(name)) != nullptr;
}

std::vector<std::string> ObjectFields::Names() const {
  std::vector<std::string> names;
  const std::span<const ObjectEntry> objects = source_.index().objects();
  for (auto object = std::ranges::lower_bound(objects, prefix_, {}, &ObjectEntry::key);
       object != objects.end() && object->key.starts_with(prefix_); ++object) {
    std::string name = object->key.substr(prefix_.size());
    if (!name.empty() && name.find('.') == name.npos) names.push_back(std::move(name));
  }
  return names;
}

std::string ObjectFields::Where(std::string_view name) const {
  return fmt::format("{}{}", prefix_, name);
}

Status ObjectFields::Give(std::string_view name, const TakeValue& take) const {
  const std::string key = Where(name);
  const ObjectEntry* const entry = source_.index().FindObject(key);
  if (entry == nullptr) return OkStatus();
  CKPT_ASSIGN_OR_RETURN(const RenderedObject object, source_.ReadObject(*entry));
  CKPT_ASSIGN_OR_RETURN(const JsonDocument json, JsonDocument::Parse(object.json, key));
  return take(json.root()).Tensor(key);
}

}  // namespace ckpt::megatron
