#include "formats/megatron/object_fields.h"

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
  return NamesBehind(prefix_, source_.index().objects());
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
  const JsonCursor root = json.root();
  return take(SettingValue(root, object.numbers)).Tensor(key);
}

}  // namespace ckpt::megatron
