#include "formats/torch_dist/internal/read_run.h"

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <iterator>
#include <map>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "core/base/checked_math.h"
#include "core/base/warning.h"
#include "core/json/json_reader.h"
#include "core/layout/find_value.h"
#include "core/tensor/dtype.h"
#include "core/tensor/shape.h"
#include "core/training/rank_buffers.h"
#include "core/training/run_settings.h"
#include "formats/megatron/bridge_files.h"
#include "formats/megatron/distinct_groups.h"
#include "formats/megatron/schedule.h"
#include "formats/megatron/stored_settings.h"
#include "formats/pickle/held_number.h"
#include "formats/torch_dist/internal/main_weights.h"
#include "formats/torch_dist/internal/param_groups.h"
#include "formats/torch_dist/internal/read_args.h"
#include "formats/torch_dist/internal/run_keys.h"
#include "formats/torch_dist/internal/source.h"
#include "formats/torch_dist/internal/unpacked_buffers.h"

namespace ckpt::torch_dist {
namespace {

using layout::Configuration;

// Of what an optimizer stores for a parameter, the exact value of the parameter itself.
constexpr std::array<std::string_view, 2> kMainNames = {kMainWeight, kMainWeightInModelSpace};

// Megatron's schedule, now and in earlier versions.
constexpr std::array<std::string_view, 2> kSchedules = {"opt_param_scheduler", "lr_scheduler"};

// What is read, or says how the rest is stored, of the common state and of an optimizer in it.
constexpr std::array<std::string_view, 8> kCommonMembers = {
    "args",      "checkpoint_version", kIteration,    kOperations,
    "optimizer", kSchedules[0],        kSchedules[1], "content_metadata"};
constexpr std::array<std::string_view, 8> kOptimizerMembers = {
    "optimizer",   "param_groups",          "state", "param_state_sharding_type", "param_state",
    "common_step", "fp32_from_fp16_params", "$dict"};

// UnpackBuffers has replaced those that it understands.
Status RefuseBuffers(const CheckpointIndex& index) {
  const auto refuse = [](std::string_view key) {
    return Error(ErrorKind::kUnsupported,
                 "the optimizer's state lies in buffers, and the checkpoint does not say where in "
                 "them a parameter lies")
        .Tensor(key)
        .Expected(
            "buffers as dp_reshardable has them, or a tensor for each parameter: "
            "distrib_optim_sharding_type fully_reshardable or fully_sharded_model_space")
        .Hint("Megatron saves it so with dist_ckpt_optim_fully_reshardable");
  };
  for (const GlobalTensor& tensor : index.tensors()) {
    if (WithoutNumber(tensor.key).starts_with(kOptimizerBuffers)) return refuse(tensor.key);
  }
  for (const ObjectEntry& object : index.objects()) {
    const std::string_view key = WithoutNumber(object.key);
    const bool is_state = key.find(".param_state/") != std::string_view::npos;
    if (key.starts_with(kOptimizerBuffers) && is_state) return refuse(object.key);
  }
  return OkStatus();
}

// The common state, or what an optimizer stored beside its buffers, as JSON.
class StoredState {
 public:
  static Result<StoredState> Read(const CheckpointSource& source, const ObjectEntry& entry) {
    CKPT_ASSIGN_OR_RETURN(RenderedObject object, source.ReadObject(entry));
    CKPT_ASSIGN_OR_RETURN(JsonDocument json, JsonDocument::Parse(object.json, entry.key));
    return StoredState(entry.key, std::move(json), std::move(object.numbers));
  }
  static Result<StoredState> ReadCommon(const CheckpointSource& source) {
    if (const ObjectEntry* const entry = source.index().FindObject(kCommonKey)) {
      return Read(source, *entry);
    }
    return Error(ErrorKind::kMissing, "the checkpoint has no common state").Tensor(kCommonKey);
  }

  [[nodiscard]] JsonCursor root() const { return json_.root(); }
  [[nodiscard]] const std::string& key() const { return key_; }
  // What errors name as the place of a value.
  [[nodiscard]] std::string PlaceOf(const JsonCursor& value) const {
    return fmt::format("{}: {}", key_, value.where());
  }

  // The value of a tensor that is one number; nothing if `value` is no such tensor.
  [[nodiscard]] std::optional<double> NumberOf(const JsonCursor& value) const {
    const std::optional<JsonCursor> tensor = value.Find("$tensor");
    return tensor ? pickle::HeldNumberOf(*tensor, numbers_) : std::nullopt;
  }

 private:
  StoredState(std::string key, JsonDocument json, HeldNumbers numbers)
      : key_(std::move(key)), json_(std::move(json)), numbers_(std::move(numbers)) {}

  std::string key_;
  JsonDocument json_;
  HeldNumbers numbers_;
};

// How often an optimizer updated all its parameters. Torch's own Adam counts in a tensor.
Result<std::int64_t> Step(const StoredState& state, const JsonCursor& value) {
  if (value.kind() != JsonKind::kObject) return megatron::CountOf(value, state.PlaceOf(value));
  if (const std::optional<double> number = state.NumberOf(value)) {
    return megatron::CountOf(*number, state.PlaceOf(value));
  }
  return Error(ErrorKind::kUnsupported, "the optimizer's count of updates is not a number")
      .Tensor(state.key())
      .Expected("a number, or a tensor of one")
      .Actual(fmt::format("an object at {}", value.where()));
}

// Settings that are members of an object.
class MemberSettings final : public megatron::StoredSettings {
 public:
  MemberSettings(const StoredState& state, const JsonCursor& object)
      : state_(state), object_(object) {}

  [[nodiscard]] bool Has(std::string_view name) const override {
    return object_.Find(name).has_value();
  }
  [[nodiscard]] std::vector<std::string> Names() const override {
    std::vector<std::string> names;
    if (const auto members = object_.Members(); members.ok()) {
      for (const auto& [name, value] : *members) names.push_back(name);
    }
    std::ranges::sort(names);
    return names;
  }
  [[nodiscard]] std::string Where(std::string_view name) const override {
    return fmt::format("{}/{}", state_.PlaceOf(object_), name);
  }

 protected:
  Status Give(std::string_view name, const TakeValue& take) const override {
    const std::optional<JsonCursor> member = object_.Find(name);
    return member ? take(*member).Tensor(Where(name)) : OkStatus();
  }

 private:
  const StoredState& state_;
  const JsonCursor object_;
};

// The bytes of all tensors in a value. Errors: kBadMetadata, kResource (a size that none has).
Result<std::uint64_t> TensorBytes(const JsonCursor& value) {
  std::uint64_t bytes = 0;
  const auto add = [&](const JsonCursor& part) -> Status {
    CKPT_ASSIGN_OR_RETURN(const std::uint64_t more, TensorBytes(part));
    if (CheckedAdd(bytes, more, &bytes)) return OkStatus();
    return Error(ErrorKind::kResource, "the size of tensors overflows 64 bits");
  };
  if (value.kind() == JsonKind::kArray) {
    CKPT_ASSIGN_OR_RETURN(const std::vector<JsonCursor> items, value.Items());
    for (const JsonCursor& item : items) CKPT_RETURN_IF_ERROR(add(item));
  }
  if (value.kind() != JsonKind::kObject) return bytes;
  std::optional<JsonCursor> tensor = value.Find("$tensor");
  if (!tensor) tensor = value.Find("$parameter");
  if (!tensor) {
    CKPT_ASSIGN_OR_RETURN(const auto members, value.Members());
    for (const auto& [name, member] : members) CKPT_RETURN_IF_ERROR(add(member));
    return bytes;
  }
  const auto shape = tensor->Find("shape");
  const auto dtype = tensor->Find("dtype");
  if (!shape || !dtype) return bytes;
  CKPT_ASSIGN_OR_RETURN(const Dims dims, shape->Int64Array());
  CKPT_ASSIGN_OR_RETURN(const std::string name, dtype->Text());
  const std::optional<DType> parsed = ParseDType(name);
  return parsed ? CountBytes(dims, *parsed) : bytes;
}

// Notes what is not among `read`.
Status NoteUnread(const StoredState& state, const JsonCursor& object,
                  std::span<const std::string_view> read, StoredRun& into) {
  if (object.kind() != JsonKind::kObject) return OkStatus();
  CKPT_ASSIGN_OR_RETURN(const auto members, object.Members());
  for (const auto& [name, member] : members) {
    if (std::ranges::find(read, name) != read.end() || member.is_null()) continue;
    Result<std::uint64_t> bytes = TensorBytes(member);
    if (!bytes.ok()) return std::move(bytes).status().Tensor(state.PlaceOf(member));
    into.unread.push_back({fmt::format("{}{}", state.key(), member.where()), *bytes});
  }
  return OkStatus();
}

std::optional<JsonCursor> ScheduleIn(const StoredState& common) {
  for (const std::string_view name : kSchedules) {
    if (const auto stored = common.root().Find(name); stored && !stored->is_null()) return stored;
  }
  return std::nullopt;
}

// Without a schedule, as other programs than Megatron save it.
void KeepRate(StoredRun& into) {
  megatron::KeepGroupsSettings(into.run);
  Problem warning = Warning(ErrorKind::kMissing, "the checkpoint holds no schedule of the rate");
  warning.hint = fmt::format("the target's schedule stays at {}", into.run.schedule.max_lr);
  into.assumptions.push_back(std::move(warning));
}

Result<ParamGroup> ReadGroup(const StoredState& state, const JsonCursor& stored,
                             std::optional<std::int64_t> step, StoredRun& into) {
  const RunSchedule& schedule = into.run.schedule;
  ParamGroup group = {.max_lr = schedule.max_lr, .min_lr = schedule.min_lr};
  const MemberSettings settings(state, stored);
  CKPT_RETURN_IF_ERROR(megatron::ReadGroup(settings, group, into));
  const bool says_max =
      into.said.contains(fmt::format("{}max_lr", kOfSchedule)) || settings.Has("max_lr");
  if (!says_max) group.max_lr = group.lr;
  if (group.sgd) step = step.value_or(0);
  const std::optional<JsonCursor> own = stored.Find("step");
  if (!own && !step) {
    return Error(ErrorKind::kMissing, "a parameter group does not say how often it was updated")
        .Tensor(state.key())
        .Actual(fmt::format("no step at {}", stored.where()));
  }
  group.step = step.value_or(0);
  if (own) {
    CKPT_ASSIGN_OR_RETURN(group.step, Step(state, *own));
  }
  return group;
}

// Takes a parameter group, and how often its optimizer says that it was updated.
using TakeGroup =
    std::function<Status(const JsonCursor& group, const std::optional<std::int64_t>& step)>;

// One optimizer: {"optimizer": {"param_groups": […]}, …}, or its inner part alone. With several
// optimizers, a dictionary of them by number. Notes in `into` what is not understood.
Status VisitGroups(const StoredState& state, const JsonCursor& stored,
                   std::optional<std::int64_t> step, int depth, const TakeGroup& take,
                   StoredRun& into) {
  constexpr int kMaxDepth = 3;
  if (depth > kMaxDepth) return OkStatus();
  CKPT_RETURN_IF_ERROR(NoteUnread(state, stored, kOptimizerMembers, into));
  if (const auto common_step = stored.Find("common_step")) {
    CKPT_ASSIGN_OR_RETURN(step, Step(state, *common_step));
  }
  if (const auto inner = stored.Find("state")) {
    if (const auto common_step = inner->Find("common_step")) {
      CKPT_ASSIGN_OR_RETURN(step, Step(state, *common_step));
    }
  }
  if (const auto listed = stored.Find("param_groups")) {
    CKPT_ASSIGN_OR_RETURN(const std::vector<JsonCursor> items, listed->Items());
    for (const JsonCursor& item : items) CKPT_RETURN_IF_ERROR(take(item, step));
    return OkStatus();
  }
  if (const auto inner = stored.Find("optimizer")) {
    return VisitGroups(state, *inner, step, depth + 1, take, into);
  }
  const auto numbered = stored.Find("$dict");
  if (!numbered) return OkStatus();
  CKPT_ASSIGN_OR_RETURN(const std::vector<JsonCursor> pairs, numbered->Items());
  for (const JsonCursor& pair : pairs) {
    CKPT_ASSIGN_OR_RETURN(const std::vector<JsonCursor> entry, pair.Items());
    if (entry.size() != 2) continue;
    CKPT_RETURN_IF_ERROR(VisitGroups(state, entry[1], step, depth + 1, take, into));
  }
  return OkStatus();
}

Status ReadOptimizer(const StoredState& state, const JsonCursor& stored,
                     std::optional<std::int64_t> step, StoredRun& into) {
  const auto read = [&](const JsonCursor& group,
                        const std::optional<std::int64_t>& updates) -> Status {
    CKPT_ASSIGN_OR_RETURN(into.run.groups.emplace_back(), ReadGroup(state, group, updates, into));
    return OkStatus();
  };
  return VisitGroups(state, stored, step, 0, read, into);
}

bool UsesSgd(const CheckpointIndex& index) {
  return std::ranges::any_of(index.tensors(), [](const GlobalTensor& tensor) {
    const auto state = StateIn(tensor.key);
    return state && state->first == kMomentOfSgd;
  });
}

// Of an optimizer whose state lies in buffers, what is no tensor: the key of an object.
bool IsBesideBuffers(std::string_view key) {
  constexpr std::string_view kInner = ".optimizer/shard_";
  key = WithoutNumber(key);
  return key.starts_with(kOptimizerBuffers) && key.find(kInner) != std::string_view::npos;
}

// How long buffers are, which their tensors say, too.
bool IsSizeOfBuffers(std::string_view key) {
  key = WithoutNumber(key);
  return key.starts_with(kOptimizerBuffers) &&
         key.find(".per_bucket_numel") != std::string_view::npos;
}

// Every group of ranks stores its optimizer's groups, which are those of others if these have
// parameters of the same kind.
Status ReadGroupsBesideBuffers(const CheckpointSource& source, std::optional<std::int64_t> step,
                               StoredRun& into) {
  std::vector<ParamGroup>& groups = into.run.groups;
  megatron::DistinctGroups distinct;
  for (const ParamGroup& group : groups) distinct.Add(group);
  for (const ObjectEntry& object : source.index().objects()) {
    if (!IsBesideBuffers(object.key)) continue;
    CKPT_ASSIGN_OR_RETURN(const StoredState state, StoredState::Read(source, object));
    // Megatron's objects are lists of one.
    CKPT_ASSIGN_OR_RETURN(const std::vector<JsonCursor> items, state.root().Items());
    for (const JsonCursor& item : items) {
      std::vector<ParamGroup> known = std::exchange(groups, {});
      CKPT_RETURN_IF_ERROR(ReadOptimizer(state, item, step, into));
      for (const ParamGroup& group : groups) {
        const std::size_t next = distinct.groups().size();
        if (distinct.Add(group) == next) known.push_back(group);
      }
      groups = std::move(known);
    }
  }
  return OkStatus();
}

// The groups of SGD are at step 0.
Status ReadGroups(const CheckpointSource& source, const StoredState& common, StoredRun& into) {
  std::optional<std::int64_t> step;
  if (UsesSgd(source.index())) step = 0;
  if (const auto stored = common.root().Find("optimizer")) {
    CKPT_RETURN_IF_ERROR(ReadOptimizer(common, *stored, step, into));
  }
  CKPT_RETURN_IF_ERROR(ReadGroupsBesideBuffers(source, step, into));
  if (!into.run.groups.empty()) return OkStatus();
  return Error(ErrorKind::kMissing, "nothing says how often the optimizer updated the weights")
      .Tensor(kCommonKey)
      .Expected("optimizer, with param_groups")
      .Hint("ckpt-train --set finetune=true takes the weights alone");
}

// How often an optimizer that does not count updated the weights.
Result<std::int64_t> ScheduledStep(const Configuration& args, const TrainingRun& run) {
  if (const auto updates = megatron::UpdatesOfSchedule(run, args)) return *updates;
  return Error(ErrorKind::kMissing, "neither the optimizer nor its schedule counts updates")
      .Tensor(kCommonKey)
      .Expected("equal batches, of which the schedule has counted a whole number")
      .Actual(fmt::format("{} samples, where {} iterations consumed {}", run.schedule.num_steps,
                          run.iteration, run.consumed_samples))
      .Hint("ckpt-convert --weights-only leaves the optimizer out");
}

// `run` has its groups, its progress and its schedule.
Status CountUpdates(const Configuration& args, TrainingRun& run) {
  for (ParamGroup& group : run.groups) {
    if (!group.sgd || group.step != 0) continue;
    CKPT_ASSIGN_OR_RETURN(group.step, ScheduledStep(args, run));
  }
  for (std::size_t g = 0; g < run.groups.size(); ++g) {
    const ParamGroup& group = run.groups[g];
    if (group.step == run.finished_updates()) continue;
    return Error(ErrorKind::kUnsupported, "parameters were updated unequally often")
        .Tensor(kCommonKey)
        .Expected(fmt::format("{} updates, as of group 0", run.finished_updates()))
        .Actual(fmt::format("{} of group {} ({}wd_mult {}, lr_mult {})", group.step, g,
                            group.is_expert_parallel ? "experts, " : "", group.wd_mult,
                            group.lr_mult))
        .Hint(kTakeWeightsAlone);
  }
  return OkStatus();
}

Result<std::int64_t> NeededArg(const Configuration& args, std::string_view name) {
  if (const auto value = layout::FindInt(args, name)) return *value;
  return Error(ErrorKind::kMissing, fmt::format("args have no number {}", name)).Tensor(kCommonKey);
}

Status ReadProgress(const StoredState& common, const Configuration& args, StoredRun& into) {
  TrainingRun& run = into.run;
  run.args.assign(args.begin(), args.end());
  CKPT_ASSIGN_OR_RETURN(const JsonCursor iteration, common.root().At(kIteration));
  CKPT_ASSIGN_OR_RETURN(run.iteration, iteration.Int64());
  CKPT_ASSIGN_OR_RETURN(run.consumed_samples, NeededArg(args, kSamples));
  into.said.insert({std::string(kIteration), std::string(kSamples)});
  if (const auto seed = layout::FindInt(args, "seed")) {
    run.seed = static_cast<std::uint64_t>(*seed);
  }
  // Beside its common state, if at all, Megatron-Bridge counts them.
  if (const auto counted = layout::FindFloat(args, kOperations)) {
    run.num_floating_point_operations = *counted;
    into.said.emplace(kOperations);
  }
  if (common.root().Find(kOperations)) into.said.emplace(kOperations);
  return MemberSettings(common, common.root()).Read(kOperations, run.num_floating_point_operations);
}

// What an optimizer keeps, by its name: keys of weights by those of its tensors.
using States = std::map<std::string, std::map<std::string, std::string>>;

constexpr std::string_view kNeitherAdamNorSgd = "the optimizer is neither Adam nor SGD";

// "momentum_buffer for A and 3 more".
std::string DescribeKept(const States::value_type& state) {
  const auto& [name, weight_of] = state;
  const std::string kept = fmt::format("{} for {}", name, weight_of.begin()->second);
  if (weight_of.size() == 1) return kept;
  return fmt::format("{} and {} more", kept, weight_of.size() - 1);
}

// Muon keeps a momentum of matrices, and Adam's moments of all else.
Status CheckIsOneKind(const States& states) {
  const auto of_sgd = states.find(std::string(kMomentOfSgd));
  const auto of_adam = states.find("exp_avg");
  if (of_sgd == states.end() || of_adam == states.end()) return OkStatus();
  return Error(ErrorKind::kUnsupported, kNeitherAdamNorSgd)
      .Expected(fmt::format("exp_avg and exp_avg_sq, or {}, for every weight", kMomentOfSgd))
      .Actual(fmt::format("{}, {}", DescribeKept(*of_sgd), DescribeKept(*of_adam)))
      .Hint(kTakeWeightsAlone);
}

// Every weight that the optimizer updates must have every moment.
Status CheckMoments(const States& states) {
  std::set<std::string> trained;
  for (const auto& [name, tensors] : states) {
    for (const auto& [key, weight] : tensors) trained.insert(weight);
  }
  Status absent;
  for (const auto& [name, tensors] : states) {
    std::set<std::string> present;
    for (const auto& [key, weight] : tensors) present.insert(weight);
    for (const std::string& weight : trained) {
      if (present.contains(weight)) continue;
      absent.Add(Error(ErrorKind::kMissing, "a trained weight has no moment of the optimizer")
                     .Tensor(fmt::format("{}{}.{}", kOptimizerState, name, weight)));
    }
  }
  return absent;
}

// Lion keeps the first of Adam's moments alone.
Status CheckIsKnown(const OptimizerTensors& tensors) {
  const auto keeps = [&](std::string_view name) {
    return std::ranges::find(tensors.moments, name, &StoredMoment::name) != tensors.moments.end();
  };
  if (!keeps("exp_avg") || keeps("exp_avg_sq")) return OkStatus();
  return Error(ErrorKind::kUnsupported, kNeitherAdamNorSgd)
      .Expected("exp_avg and exp_avg_sq")
      .Actual("exp_avg alone")
      .Hint(std::string(kTakeWeightsAlone));
}

// The weights that the optimizer updates: those for which it keeps something. Where it keeps
// nothing, they may be all.
std::set<std::string> UpdatedWeights(const CheckpointIndex& index, const OptimizerTensors& kept) {
  std::set<std::string> weights;
  const auto& known = kept.moments.empty() ? kept.main_weights : kept.moments.front().weight_of;
  for (const auto& [key, weight] : known) weights.insert(weight);
  if (!known.empty()) return weights;
  for (const GlobalTensor& tensor : index.tensors()) {
    if (!WithoutNumber(tensor.key).starts_with(kOptimizer)) weights.insert(tensor.key);
  }
  return weights;
}

}  // namespace

bool HoldsRun(const CheckpointIndex& index) {
  const auto is_of_optimizer = [](const auto& entry) {
    return WithoutNumber(entry.key).starts_with(kOptimizer);
  };
  return std::ranges::any_of(index.tensors(), is_of_optimizer) ||
         std::ranges::any_of(index.objects(), is_of_optimizer);
}

bool HoldsGroups(const CheckpointSource& source) {
  const Result<StoredState> common = StoredState::ReadCommon(source);
  const auto stored = common.ok() ? common->root().Find("optimizer") : std::nullopt;
  if (!stored) return false;
  bool is_sgd = false;
  const auto look = [&](const JsonCursor& group, const std::optional<std::int64_t>& /*step*/) {
    is_sgd = is_sgd || group.Find("momentum").has_value();
    return OkStatus();
  };
  StoredRun unread;
  // Of one that is not understood, ReadRun says why.
  return !VisitGroups(*common, *stored, std::nullopt, 0, look, unread).ok() || is_sgd;
}

Result<OptimizerTensors> FindTensors(const CheckpointIndex& index) {
  CKPT_RETURN_IF_ERROR(RefuseBuffers(index));
  States states;
  for (const GlobalTensor& tensor : index.tensors()) {
    if (const auto state = StateIn(tensor.key)) states[state->first][tensor.key] = state->second;
  }
  CKPT_RETURN_IF_ERROR(CheckIsOneKind(states));
  CKPT_RETURN_IF_ERROR(CheckMoments(states));
  OptimizerTensors found;
  for (auto& [name, tensors] : states) {
    if (std::ranges::find(kMainNames, name) != kMainNames.end()) {
      found.main_weights = std::move(tensors);
    } else {
      found.moments.push_back({.name = name, .weight_of = std::move(tensors)});
    }
  }
  return found;
}

Result<StoredRun> ReadRun(const CheckpointSource& source, RunDetail detail) {
  CKPT_ASSIGN_OR_RETURN(OptimizerTensors tensors, FindTensors(source.index()));
  CKPT_RETURN_IF_ERROR(CheckIsKnown(tensors));
  Result<Configuration> read_args = ReadArgs(source);
  RankBuffers buffers = BuffersOf(source);
  std::vector<Problem> inexact;
  // What lies where in buffers was found by it.
  if (buffers.empty()) {
    const bool are_rounded = !read_args.ok() || RoundToWeights(*read_args);
    const RunDetail compared = are_rounded ? detail : RunDetail::kToResume;
    CKPT_ASSIGN_OR_RETURN(inexact, CheckAreExact(source, tensors.main_weights, compared));
    if (!are_rounded) inexact.clear();
  }
  CKPT_ASSIGN_OR_RETURN(const StoredState common, StoredState::ReadCommon(source));
  StoredRun stored{std::move(tensors)};
  CKPT_RETURN_IF_ERROR(NoteUnread(common, common.root(), kCommonMembers, stored));
  const std::optional<JsonCursor> schedule = ScheduleIn(common);
  if (schedule) {
    CKPT_RETURN_IF_ERROR(megatron::ReadSchedule(MemberSettings(common, *schedule), stored));
  }
  CKPT_RETURN_IF_ERROR(ReadGroups(source, common, stored));
  if (!schedule) KeepRate(stored);
  CKPT_ASSIGN_OR_RETURN(const Configuration args, std::move(read_args));
  std::ranges::move(inexact, std::back_inserter(stored.assumptions));
  CKPT_RETURN_IF_ERROR(ReadProgress(common, args, stored));
  megatron::SettleDecoupling(stored);
  if (UsesSgd(source.index())) {
    for (ParamGroup& group : stored.run.groups) {
      if (!group.sgd) group.sgd = megatron::SgdOf(args);
    }
  }
  CKPT_RETURN_IF_ERROR(CountUpdates(args, stored.run));
  CKPT_RETURN_IF_ERROR(CheckKeepsMoments(stored));
  if (detail == RunDetail::kToResume) {
    CKPT_RETURN_IF_ERROR(megatron::CheckSchedule(stored.run, args, kCommonKey));
  }
  // Megatron-Core from 0.16 on says in each group whether it overrides anything.
  const bool is_old = !stored.said.contains(fmt::format("{}default_config", kOfGroups));
  // Whatever group each was in, this is what can be known of it.
  for (const std::string& weight : UpdatedWeights(source.index(), stored)) {
    stored.run.group_of.emplace_back(weight, 0);
  }
  (is_old ? &ForgetGroupsOfOldSave : &ForgetGroups)(stored.run);
  stored.run.buffers = std::move(buffers);
  stored.decoded = {std::string(kCommonKey), std::string(megatron::kRunConfigKey),
                    std::string(megatron::kTrainStateKey)};
  for (const ObjectEntry& object : source.index().objects()) {
    if (IsBesideBuffers(object.key) || IsSizeOfBuffers(object.key)) {
      stored.decoded.push_back(object.key);
    }
  }
  return stored;
}

}  // namespace ckpt::torch_dist
