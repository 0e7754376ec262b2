#include "formats/megatron/object_fields.h"

#include <utility>

#include <fmt/format.h>

#include "core/json/json_reader.h"
#include "formats/megatron/plain_pickle.h"
#include "formats/pickle/writer.h"

namespace ckpt::megatron {

Bytes PicklePair(const std::array<double, 2>& pair) {
  pickle::PickleWriter pickle(pickle::Dialect::kWeightsOnly);
  pickle.BeginTuple().Float(pair[0]).Float(pair[1]).EndTuple();
  return pickle.Take();
}

std::vector<ObjectField> ScheduleFields(const RunSchedule& schedule) {
  return {{"max_lr", PickleValue(schedule.max_lr)},
          {"lr_warmup_steps", PickleValue(schedule.lr_warmup_steps)},
          {"num_steps", PickleValue(schedule.num_steps)},
          {"lr_decay_style", PickleValue(schedule.lr_decay_style)},
          {"lr_decay_steps", PickleValue(schedule.lr_decay_steps)},
          {"min_lr", PickleValue(schedule.min_lr)},
          {"start_wd", PickleValue(schedule.start_wd)},
          {"end_wd", PickleValue(schedule.end_wd)},
          {"wd_incr_style", PickleValue(schedule.wd_incr_style)},
          {"wd_incr_steps", PickleValue(schedule.wd_incr_steps)}};
}

template <typename T, typename Convert>
Status ObjectFields::ReadAs(std::string_view name, T& into, const Convert& convert) const {
  const std::string key = fmt::format("{}{}", prefix_, name);
  const ObjectEntry* const entry = source_.index().FindObject(key);
  if (entry == nullptr) return OkStatus();
  CKPT_ASSIGN_OR_RETURN(const RenderedObject object, source_.ReadObject(*entry));
  CKPT_ASSIGN_OR_RETURN(const JsonDocument json, JsonDocument::Parse(object.json, key));
  if (json.root().is_null()) return OkStatus();
  Result<T> value = convert(json.root());
  if (!value.ok()) return std::move(value).status().Tensor(key);
  into = *std::move(value);
  return OkStatus();
}

Status ObjectFields::Read(std::string_view name, double& into) const {
  return ReadAs(name, into, [](const JsonCursor& value) { return value.Double(); });
}
Status ObjectFields::Read(std::string_view name, std::int64_t& into) const {
  return ReadAs(name, into, [](const JsonCursor& value) { return value.Int64(); });
}
Status ObjectFields::Read(std::string_view name, bool& into) const {
  return ReadAs(name, into, [](const JsonCursor& value) { return value.Bool(); });
}
Status ObjectFields::Read(std::string_view name, std::string& into) const {
  return ReadAs(name, into, [](const JsonCursor& value) { return value.Text(); });
}
Status ObjectFields::Read(std::string_view name, std::array<double, 2>& into) const {
  return ReadAs(name, into, [](const JsonCursor& value) -> Result<std::array<double, 2>> {
    CKPT_ASSIGN_OR_RETURN(const JsonCursor tuple, value.At("$tuple"));
    CKPT_ASSIGN_OR_RETURN(const std::vector<JsonCursor> items, tuple.Items());
    std::array<double, 2> pair = {};
    if (items.size() != pair.size()) {
      return Error(ErrorKind::kBadMetadata, "not a pair of numbers");
    }
    for (std::size_t i = 0; i < pair.size(); ++i) {
      CKPT_ASSIGN_OR_RETURN(pair[i], items[i].Double());
    }
    return pair;
  });
}
Status ObjectFields::Read(std::string_view name, std::vector<std::string>& into) const {
  return ReadAs(name, into, [](const JsonCursor& value) -> Result<std::vector<std::string>> {
    CKPT_ASSIGN_OR_RETURN(const std::vector<JsonCursor> items, value.Items());
    std::vector<std::string> texts;
    for (const JsonCursor& item : items) {
      CKPT_ASSIGN_OR_RETURN(texts.emplace_back(), item.Text());
    }
    return texts;
  });
}

bool ObjectFields::Has(std::string_view name) const {
  return source_.index().FindObject(fmt::format("{}{}", prefix_, name)) != nullptr;
}

Status ReadSchedule(const CheckpointSource& source, std::string_view prefix,
                    RunSchedule& schedule) {
  const ObjectFields fields(source, std::string(prefix));
  CKPT_RETURN_IF_ERROR(fields.Read("max_lr", schedule.max_lr));
  CKPT_RETURN_IF_ERROR(fields.Read("min_lr", schedule.min_lr));
  CKPT_RETURN_IF_ERROR(fields.Read("lr_warmup_steps", schedule.lr_warmup_steps));
  CKPT_RETURN_IF_ERROR(fields.Read("lr_decay_style", schedule.lr_decay_style));
  CKPT_RETURN_IF_ERROR(fields.Read("lr_decay_steps", schedule.lr_decay_steps));
  CKPT_RETURN_IF_ERROR(fields.Read("start_wd", schedule.start_wd));
  CKPT_RETURN_IF_ERROR(fields.Read("end_wd", schedule.end_wd));
  CKPT_RETURN_IF_ERROR(fields.Read("wd_incr_style", schedule.wd_incr_style));
  return fields.Read("wd_incr_steps", schedule.wd_incr_steps);
}

}  // namespace ckpt::megatron
