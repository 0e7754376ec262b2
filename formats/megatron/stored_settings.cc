#include "formats/megatron/stored_settings.h"

#include <cmath>

#include <fmt/format.h>

#include "core/json/json_reader.h"
#include "core/layout/find_value.h"
#include "core/training/run_settings.h"

namespace ckpt::megatron {
namespace {

// A flag of which a run holds one value only.
struct HeldFlag {
  std::string_view name;
  bool value;
  std::string_view otherwise;  // what the optimizer does if it has the other one
};

constexpr std::array<HeldFlag, 3> kHeldFlags = {
    {{"amsgrad", false, "the optimizer keeps the largest second moments"},
     {"maximize", false, "the optimizer maximizes"},
     {"bias_correction", true, "the optimizer does not correct the bias of its moments"}}};

Status CheckFlags(const StoredSettings& stored) {
  const auto say = [](bool value) { return value ? "True" : "False"; };
  Status refused;
  for (const HeldFlag& flag : kHeldFlags) {
    bool value = flag.value;
    CKPT_RETURN_IF_ERROR(stored.Read(flag.name, value));
    if (value == flag.value) continue;
    refused.Add(Error(ErrorKind::kUnsupported, flag.otherwise)
                    .Tensor(stored.Where(flag.name))
                    .Expected(say(flag.value))
                    .Actual(say(value)));
  }
  return refused;
}

// Reads the settings that it visits, up to the first that fails, and notes which are stored.
struct ReadEach {
  const StoredSettings& stored;
  std::string_view prefix;  // of the names in `said`
  SettingNames& said;
  Status status = {};

  void operator()(std::string_view name, auto& into) {
    if (!status.ok()) return;
    status = stored.Read(name, into);
    if (stored.Has(name)) said.insert(fmt::format("{}{}", prefix, name));
  }
};

}  // namespace

template <typename T, typename Convert>
Status StoredSettings::ReadAs(std::string_view name, T& into, const Convert& convert) const {
  return Give(name, [&](const JsonCursor& value) -> Status {
    if (value.is_null()) return OkStatus();
    CKPT_ASSIGN_OR_RETURN(into, convert(value));
    return OkStatus();
  });
}

Status StoredSettings::Read(std::string_view name, bool& into) const {
  return ReadAs(name, into, [](const JsonCursor& value) { return value.Bool(); });
}
Status StoredSettings::Read(std::string_view name, double& into) const {
  return ReadAs(name, into, [](const JsonCursor& value) { return value.Double(); });
}
Status StoredSettings::Read(std::string_view name, std::int64_t& count) const {
  return ReadAs(name, count, [&](const JsonCursor& value) { return CountOf(value, Where(name)); });
}
Status StoredSettings::Read(std::string_view name, std::string& into) const {
  return ReadAs(name, into, [](const JsonCursor& value) { return value.Text(); });
}
Status StoredSettings::Read(std::string_view name, std::array<double, 2>& into) const {
  return ReadAs(name, into, [](const JsonCursor& value) -> Result<std::array<double, 2>> {
    CKPT_ASSIGN_OR_RETURN(const JsonCursor tuple, value.At("$tuple"));
    CKPT_ASSIGN_OR_RETURN(const std::vector<JsonCursor> items, tuple.Items());
    std::array<double, 2> pair = {};
    if (items.size() != pair.size()) {
      return Error(ErrorKind::kBadMetadata, "not a pair of numbers")
          .Actual(fmt::format("{} numbers", items.size()));
    }
    for (std::size_t i = 0; i < pair.size(); ++i) {
      CKPT_ASSIGN_OR_RETURN(pair[i], items[i].Double());
    }
    return pair;
  });
}
Status StoredSettings::Read(std::string_view name, std::vector<std::string>& into) const {
  return ReadAs(name, into, [](const JsonCursor& value) -> Result<std::vector<std::string>> {
    CKPT_ASSIGN_OR_RETURN(const std::vector<JsonCursor> items, value.Items());
    std::vector<std::string> texts;
    for (const JsonCursor& item : items) {
      CKPT_ASSIGN_OR_RETURN(texts.emplace_back(), item.Text());
    }
    return texts;
  });
}

Result<std::int64_t> CountOf(double number, std::string_view tensor) {
  constexpr double kMost = 9007199254740992.0;  // 2^53
  if (number >= 0 && number <= kMost && std::floor(number) == number) {
    return static_cast<std::int64_t>(number);
  }
  return Error(ErrorKind::kBadMetadata, "a count is not a whole number")
      .Tensor(tensor)
      .Actual(fmt::format("{}", number));
}

Result<std::int64_t> CountOf(const JsonCursor& value, std::string_view tensor) {
  if (Result<std::int64_t> count = value.Int64(); count.ok() && *count >= 0) return count;
  CKPT_ASSIGN_OR_RETURN(const double number, value.Double());
  return CountOf(number, tensor);
}

Status ReadGroup(const StoredSettings& stored, ParamGroup& group, SettingNames& said) {
  ReadEach read = {stored, kOfGroups, said};
  VisitGroup(group, read);
  return read.status;
}

Status ReadOptimizer(const StoredSettings& stored, ParamGroup& group, SettingNames& said) {
  CKPT_RETURN_IF_ERROR(CheckFlags(stored));
  if (stored.Has("momentum")) group.sgd.emplace();
  ReadEach read = {stored, kOfGroups, said};
  VisitOptimizer(group, read);
  return read.status;
}

SgdSettings SgdOf(const layout::Configuration& args) {
  constexpr double kDefault = 0.9;  // Megatron's
  return {.momentum = layout::FindFloat(args, "sgd_momentum").value_or(kDefault)};
}

Status ReadSchedule(const StoredSettings& stored, RunSchedule& schedule, SettingNames& said) {
  ReadEach read = {stored, kOfSchedule, said};
  VisitSchedule(schedule, read);
  return read.status;
}

}  // namespace ckpt::megatron
