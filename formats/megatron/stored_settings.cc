#include "formats/megatron/stored_settings.h"

#include <algorithm>
#include <cmath>
#include <set>
#include <utility>

#include <fmt/format.h>

#include "core/json/json_reader.h"
#include "core/layout/find_value.h"
#include "core/training/run_format.h"
#include "core/training/run_settings.h"
#include "formats/megatron/internal/foreign_settings.h"
#include "formats/megatron/internal/plain_setting.h"

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
                    .Actual(say(value))
                    .Hint(kTakeWeightsAlone));
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

// Collects the names of the settings that it visits.
struct NameEach {
  std::set<std::string, std::less<>>& names;

  void operator()(std::string_view name, const auto& /*setting*/) const { names.emplace(name); }
};

// Names that earlier versions of Megatron gave to settings of the schedule.
struct EarlierName {
  std::string_view name;
  std::string_view now;
  Status (*read)(const StoredSettings& stored, std::string_view name, RunSchedule& schedule);
};

template <auto kMember>
Status ReadInto(const StoredSettings& stored, std::string_view name, RunSchedule& schedule) {
  return stored.Read(name, schedule.*kMember);
}

constexpr std::array<EarlierName, 7> kEarlierNames = {
    {{"start_lr", "max_lr", &ReadInto<&RunSchedule::max_lr>},
     {"warmup_iter", "lr_warmup_steps", &ReadInto<&RunSchedule::lr_warmup_steps>},
     {"warmup_steps", "lr_warmup_steps", &ReadInto<&RunSchedule::lr_warmup_steps>},
     {"end_iter", "lr_decay_steps", &ReadInto<&RunSchedule::lr_decay_steps>},
     {"decay_steps", "lr_decay_steps", &ReadInto<&RunSchedule::lr_decay_steps>},
     {"decay_style", "lr_decay_style", &ReadInto<&RunSchedule::lr_decay_style>},
     {"num_iters", "num_steps", &ReadInto<&RunSchedule::num_steps>}}};

// What Megatron's schedules store in every version. Others have come later: without them the weight
// decay is constant.
constexpr std::array<std::string_view, 6> kInEverySchedule = {
    "max_lr", "min_lr", "lr_warmup_steps", "lr_decay_steps", "lr_decay_style", "num_steps"};

// `said`: the settings that were found, under their names of today.
Status CheckIsWhole(const StoredSettings& stored, const SettingNames& said) {
  const auto is_said = [&](std::string_view name) {
    return said.contains(fmt::format("{}{}", kOfSchedule, name));
  };
  if (std::ranges::none_of(kInEverySchedule, is_said)) return OkStatus();
  Status absent;
  for (const std::string_view name : kInEverySchedule) {
    if (is_said(name)) continue;
    absent.Add(
        Error(ErrorKind::kMissing, "the schedule lacks a setting that Megatron always stores")
            .Tensor(stored.Where(name))
            .Hint(kTakeWeightsAlone));
  }
  return absent;
}

// Both a member of torch's groups and an argument of Megatron.
constexpr std::string_view kDecoupledDecay = "decoupled_weight_decay";

// Members of a group that are read elsewhere, or checked.
constexpr std::array<std::string_view, 7> kUnderstood = {
    "amsgrad", "maximize", "bias_correction", kDecoupledDecay, "step", "params", "initial_lr"};

// What torch's optimizers have in a group unless they are told otherwise.
bool IsDefault(std::string_view name, const layout::Value& value) {
  if (name == "foreach" || name == "fused") return value.is_null();
  return IsHowComputed(name) && value == layout::Value(false);
}

Status ReadDecoupling(const StoredSettings& stored, StoredRun& into) {
  if (!stored.Has(kDecoupledDecay)) return OkStatus();
  bool decouples = into.decouples_decay.value_or(true);
  CKPT_RETURN_IF_ERROR(stored.Read(kDecoupledDecay, decouples));
  if (into.decouples_decay.value_or(decouples) != decouples) {
    return Error(ErrorKind::kUnsupported,
                 "weight decay is decoupled in one group of the optimizer and not in another")
        .Tensor(stored.Where(kDecoupledDecay))
        .Hint(std::string(kTakeWeightsAlone));
  }
  into.decouples_decay = decouples;
  return OkStatus();
}

Status ReadOptimizer(const StoredSettings& stored, ParamGroup& group, StoredRun& into) {
  CKPT_RETURN_IF_ERROR(CheckFlags(stored));
  if (stored.Has("momentum")) group.sgd.emplace();
  CKPT_RETURN_IF_ERROR(CheckForeignSettings(stored, group.sgd.has_value()));
  if (!group.sgd) CKPT_RETURN_IF_ERROR(ReadDecoupling(stored, into));
  ReadEach read = {stored, kOfGroups, into.said};
  VisitOptimizer(group, read);
  return read.status;
}

// Others than Adam and SGD keep the same: RAdam two moments, Muon of Keller Jordan a momentum.
Status CheckMarks(const StoredSettings& stored, bool is_sgd) {
  if (is_sgd) {
    for (const std::string_view mark : {"dampening", "nesterov"}) {
      if (stored.Has(mark)) continue;
      return Error(ErrorKind::kUnsupported, "nothing says that the optimizer is SGD")
          .Tensor(stored.Where(mark))
          .Expected("dampening and nesterov, as each of its groups has them")
          .Hint(kTakeWeightsAlone);
    }
    return OkStatus();
  }
  if (stored.Has("amsgrad") || stored.Has("bias_correction")) return OkStatus();
  return Error(ErrorKind::kUnsupported, "nothing says that the optimizer is Adam or AdamW")
      .Tensor(stored.Where("amsgrad"))
      .Expected("amsgrad, or bias_correction, as each of their groups has it")
      .Hint(kTakeWeightsAlone);
}

// Whatever the group has beside the settings of `known`.
Status ReadOthers(const StoredSettings& stored, const std::set<std::string, std::less<>>& known,
                  ParamGroup& group, StoredRun& into) {
  for (const std::string& name : stored.Names()) {
    const bool is_understood = std::ranges::find(kUnderstood, name) != kUnderstood.end();
    if (is_understood || known.contains(name)) continue;
    if (IsWhereComputed(name)) {
      into.unread.push_back({stored.Where(name), 0});
      continue;
    }
    layout::Value value;
    CKPT_RETURN_IF_ERROR(stored.Read(name, value));
    if (IsDefault(name, value)) continue;
    into.said.insert(fmt::format("{}{}", kOfGroups, name));
    group.others.emplace_back(name, std::move(value));
  }
  return OkStatus();
}

}  // namespace

template <typename T, typename Convert>
Status StoredSettings::ReadAs(std::string_view name, T& into, const Convert& convert) const {
  return Give(name, [&](const SettingValue& value) -> Status {
    if (value.json().is_null()) return OkStatus();
    CKPT_ASSIGN_OR_RETURN(into, convert(value));
    return OkStatus();
  });
}

Result<bool> StoredSettings::IsOff(std::string_view name) const {
  bool is_off = true;
  CKPT_RETURN_IF_ERROR(Give(name, [&](const SettingValue& value) -> Status {
    const Result<bool> flag = PlainBool(value.json());
    is_off = value.json().is_null() || (flag.ok() && !*flag);
    return OkStatus();
  }));
  return is_off;
}

Status StoredSettings::Read(std::string_view name, bool& into) const {
  return ReadAs(name, into, [](const SettingValue& value) { return PlainBool(value.json()); });
}
Status StoredSettings::Read(std::string_view name, double& into) const {
  return ReadAs(name, into, &PlainNumber);
}
Status StoredSettings::Read(std::string_view name, std::int64_t& count) const {
  return ReadAs(name, count, [&](const SettingValue& value) -> Result<std::int64_t> {
    if (value.json().kind() != JsonKind::kObject) return CountOf(value.json(), Where(name));
    CKPT_ASSIGN_OR_RETURN(const double number, PlainNumber(value));
    return CountOf(number, Where(name));
  });
}
Status StoredSettings::Read(std::string_view name, std::string& into) const {
  return ReadAs(name, into, [](const SettingValue& value) { return value.json().Text(); });
}
Status StoredSettings::Read(std::string_view name, std::array<double, 2>& into) const {
  return ReadAs(name, into, &PlainPair);
}
Status StoredSettings::Read(std::string_view name, std::vector<std::string>& into) const {
  return ReadAs(name, into, [](const SettingValue& value) -> Result<std::vector<std::string>> {
    CKPT_ASSIGN_OR_RETURN(const std::vector<JsonCursor> items, value.json().Items());
    std::vector<std::string> texts;
    for (const JsonCursor& item : items) {
      CKPT_ASSIGN_OR_RETURN(texts.emplace_back(), item.Text());
    }
    return texts;
  });
}
Status StoredSettings::Read(std::string_view name, layout::Value& into) const {
  return ReadAs(name, into, [](const SettingValue& value) { return PlainValue(value.json()); });
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

Status ReadTorchGroup(const StoredSettings& stored, ParamGroup& group, StoredRun& into) {
  CKPT_RETURN_IF_ERROR(ReadOptimizer(stored, group, into));
  CKPT_RETURN_IF_ERROR(CheckMarks(stored, group.sgd.has_value()));
  std::set<std::string, std::less<>> known;
  VisitOptimizer(std::as_const(group), NameEach{known});
  return ReadOthers(stored, known, group, into);
}

Status ReadGroup(const StoredSettings& stored, ParamGroup& group, StoredRun& into) {
  CKPT_RETURN_IF_ERROR(ReadAddedSettings(stored, group, into.said));
  CKPT_RETURN_IF_ERROR(ReadOptimizer(stored, group, into));
  std::set<std::string, std::less<>> known;
  VisitGroup(std::as_const(group), NameEach{known});
  VisitOptimizer(std::as_const(group), NameEach{known});
  return ReadOthers(stored, known, group, into);
}

Status ReadAddedSettings(const StoredSettings& stored, ParamGroup& group, SettingNames& said) {
  ReadEach read = {stored, kOfGroups, said};
  VisitGroup(group, read);
  return read.status;
}

std::vector<std::pair<std::string, layout::Value>> OthersOf(const ParamGroup& group) {
  std::set<std::string, std::less<>> own;
  VisitGroup(group, NameEach{own});
  std::vector<std::pair<std::string, layout::Value>> others;
  for (const auto& other : group.others) {
    if (!own.contains(other.first) && !IsHowComputed(other.first)) others.push_back(other);
  }
  return others;
}

SgdSettings SgdOf(const layout::Configuration& args) {
  constexpr double kDefault = 0.9;  // Megatron's
  return {.momentum = layout::FindFloat(args, "sgd_momentum").value_or(kDefault)};
}

Status ReadSchedule(const StoredSettings& stored, StoredRun& into) {
  RunSchedule& schedule = into.run.schedule;
  std::set<std::string, std::less<>> known;
  for (const EarlierName& earlier : kEarlierNames) {
    known.emplace(earlier.name);
    if (!stored.Has(earlier.name)) continue;
    CKPT_RETURN_IF_ERROR(earlier.read(stored, earlier.name, schedule));
    into.said.insert(fmt::format("{}{}", kOfSchedule, earlier.now));
  }
  ReadEach read = {stored, kOfSchedule, into.said};
  VisitSchedule(schedule, read);
  CKPT_RETURN_IF_ERROR(std::move(read.status));
  CKPT_RETURN_IF_ERROR(CheckIsWhole(stored, into.said));
  VisitSchedule(std::as_const(schedule), NameEach{known});
  for (const std::string& name : stored.Names()) {
    if (!known.contains(name)) into.unread.push_back({stored.Where(name), 0});
  }
  return OkStatus();
}

void KeepGroupsSettings(TrainingRun& run) {
  if (!run.groups.empty()) run.schedule.max_lr = run.groups.front().max_lr;
  run.schedule.start_wd = run.schedule.end_wd = LargestDecay(run.groups);
}

void SettleDecoupling(StoredRun& into) {
  if (!into.decouples_decay) return;
  // Megatron's argument is true unless it is said.
  const bool is_said = FindArg(into.run, kDecoupledDecay) != nullptr;
  if (is_said || !*into.decouples_decay) SetArg(kDecoupledDecay, *into.decouples_decay, into.run);
}

void ReorderGroups(std::span<const std::size_t> order, std::vector<ParamGroup>& groups,
                   std::vector<std::pair<std::string, std::size_t>>& group_of) {
  std::vector<ParamGroup> ordered;
  std::vector<std::size_t> new_of(order.size());
  for (const std::size_t group : order) {
    new_of[group] = ordered.size();
    ordered.push_back(std::move(groups[group]));
  }
  groups = std::move(ordered);
  for (auto& [name, group] : group_of) group = new_of[group];
}

}  // namespace ckpt::megatron
