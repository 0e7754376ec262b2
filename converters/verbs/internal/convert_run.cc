#include "converters/verbs/internal/convert_run.h"

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <utility>

#include <fmt/format.h>

#include "converters/config/megatron_args.h"
#include "converters/config/own_args.h"
#include "converters/verbs/optimizer_groups.h"
#include "core/base/check.h"
#include "core/checkpoint/add_file.h"
#include "core/training/run_settings.h"
#include "formats/registry/stored_run.h"

namespace ckpt {
namespace {

// A model under the target's names.
Result<ModelView> ViewLike(const ModelView& like, const ModelSource& model,
                           MixedDtypes mixed = MixedDtypes::kRefuse) {
  return ViewModel(model, like.layout.naming, like.layout.choices, mixed);
}

std::string NameOf(const ModelView& view, const TargetTensor& tensor) {
  return tensor.key.substr(view.layout.prefix.size());
}

void Append(TargetTensor tensor, TensorRecipe recipe, ModelView& view) {
  view.tensors.push_back(std::move(tensor));
  view.recipes.push_back(std::move(recipe));
  view.derived.push_back(false);
  view.expected.push_back(false);
}

// Names of the target's weights, and their positions in `view`, which may have more tensors.
std::vector<std::pair<std::string, std::size_t>> WeightsIn(const ModelView& view,
                                                           const Format& target) {
  const std::string of_weights = target.run->weight_key("");
  std::vector<std::pair<std::string, std::size_t>> weights;
  for (std::size_t t = 0; t < view.tensors.size(); ++t) {
    const std::string& key = view.tensors[t].key;
    if (key.starts_with(of_weights)) weights.emplace_back(key.substr(of_weights.size()), t);
  }
  return weights;
}

// The parameters of the target that the optimizer updates, by name, and what they are made of
// (TrainingState::updated).
Result<std::map<std::string, TensorRecipe>> UpdatedLike(const ModelView& like,
                                                        const TrainingState& state) {
  CKPT_ASSIGN_OR_RETURN(ModelView updated, ViewLike(like, state.updated, MixedDtypes::kWiden));
  std::map<std::string, TensorRecipe> recipe_of;
  for (std::size_t t = 0; t < updated.tensors.size(); ++t) {
    if (updated.derived[t]) continue;
    recipe_of.emplace(NameOf(updated, updated.tensors[t]), std::move(updated.recipes[t]));
  }
  return recipe_of;
}

// Fills in the parameters of the target, trained and frozen, and their positions in `groups`.
Status GroupParameters(const TrainingState& state, const OptimizerGroups& groups,
                       const Format& target, const ModelView& view, TrainingRun& run) {
  CKPT_ASSIGN_OR_RETURN(const auto recipe_of, UpdatedLike(view, state));
  run.group_of.clear();
  run.frozen_of.clear();
  Status unknown;
  for (const auto& [name, t] : WeightsIn(view, target)) {
    const auto updated = recipe_of.find(name);
    if (updated == recipe_of.end()) {
      const std::optional<std::size_t> frozen = groups.FindFrozen(view.recipes[t]);
      if (frozen) run.frozen_of.emplace_back(name, *frozen);
      continue;
    }
    Result<std::optional<std::size_t>> group = groups.Find(view.tensors[t], updated->second);
    if (!group.ok()) {
      unknown.Add(std::move(group).status());
    } else if (*group) {
      run.group_of.emplace_back(name, **group);
    }
  }
  return unknown;
}

// Where the groups of the target name trained parameters alone.
void LeaveFrozenOut(const TrainingState& state, const Format& target, TrainingRun& run,
                    std::vector<LeftOutEntry>& left_out) {
  if (target.run->names_frozen) return;
  run.frozen_of.clear();
  for (const auto& [name, group] : state.run.frozen_of) {
    left_out.push_back({"settings of the optimizer for " + name, 0,
                        fmt::format("it is frozen, and {} has no place for them", target.name)});
  }
}

// Groups without parameters are of use to a program that asks for as many as it stored. Where
// parameters say which group they have, there is nothing to say it of these.
void LeaveEmptyGroupsOut(const Format& target, TrainingRun& run,
                         std::vector<LeftOutEntry>& left_out) {
  if (target.run->names_frozen) return;
  std::vector<bool> has_parameters(run.groups.size());
  for (const auto& [name, group] : run.group_of) has_parameters[group] = true;
  std::vector<std::size_t> position_of;  // parallel to the groups
  std::vector<ParamGroup> remaining;
  for (std::size_t g = 0; g < run.groups.size(); ++g) {
    position_of.push_back(remaining.size());
    if (has_parameters[g]) {
      remaining.push_back(std::move(run.groups[g]));
    } else {
      left_out.push_back(
          {fmt::format("group {} of the optimizer", g), 0,
           fmt::format("it has no parameters, and {} has no place for it", target.name)});
    }
  }
  for (auto& [name, group] : run.group_of) group = position_of[group];
  run.groups = std::move(remaining);
}

// Where the format does not store groups.
std::string LosesGroups(const Format& target) {
  return fmt::format("{} does not store which parameters belong to which group", target.name);
}
constexpr std::string_view kStoreGroups =
    "fsdp_dtensor and fsdp2 store it; ckpt-convert --weights-only leaves the optimizer out";

Status TakesAnother(const Format& target, const std::string& name, std::string taken,
                    std::string own) {
  return Error(ErrorKind::kUnsupported, LosesGroups(target) + ", and readers take another one")
      .Tensor(name)
      .Expected(std::move(taken))
      .Actual(std::move(own));
}

// Where the format does not store groups, its readers must take each parameter for one of its own.
Status CheckReadersTell(const TrainingState& state, const TrainingRun& run, const Format& target,
                        const ModelView& view) {
  const auto say = [&](std::size_t group) {
    const ParamGroup& of = run.groups[group];
    return fmt::format("group {} (weight decay {}, rate {})", group, of.weight_decay, of.lr);
  };
  Result<OptimizerGroups> known = OptimizerGroups::KnownToReaders(run, *target.run);
  if (!known.ok()) {
    return Error(ErrorKind::kUnsupported, LosesGroups(target))
        .Expected("one group that decays and one that does not, at most")
        .Actual(fmt::format("{} groups", run.groups.size()))
        .Hint(std::string(kStoreGroups));
  }
  const std::map<std::string_view, std::size_t> group_of(run.group_of.begin(), run.group_of.end());
  const std::span<const GlobalTensor> stored = state.weights.source().index().tensors();
  OtherParameters differences;
  for (const auto& [name, t] : WeightsIn(view, target)) {
    const auto own = group_of.find(name);
    if (own == group_of.end()) continue;
    // Not of the target's tensor, in which layers may be stacked.
    std::size_t num_dims = view.tensors[t].shape.size();
    for (const layout::Nest& nest : view.recipes[t].nests) {
      if (!nest.is_zero_fill()) num_dims = stored[nest.source].shape.size();
    }
    const std::size_t taken = known->Find(name, num_dims);
    if (taken == own->second) continue;
    differences.Add(TakesAnother(target, name, say(taken), say(own->second)));
  }
  return std::move(differences).Finish().Hint(std::string(kStoreGroups));
}

// The same for a source that names only those parameters of which its arguments tell more than
// their shapes. Each is a matrix, or named by the target, too.
Status CheckReadersTellNamed(const TrainingState& state, const TrainingRun& run,
                             const Format& target) {
  CKPT_ASSIGN_OR_RETURN(const OptimizerGroups known,
                        OptimizerGroups::KnownToReaders(run, *target.run));
  OtherParameters differences;
  for (const auto& [name, group] : state.run.group_of) {
    const ParamGroup& own = state.run.groups[group];
    const ParamGroup& taken = known.groups()[known.Find(name, 2)];
    if (own.weight_decay == taken.weight_decay && own.lr == taken.lr) continue;
    differences.Add(TakesAnother(target, name, fmt::format("weight decay {}", taken.weight_decay),
                                 fmt::format("weight decay {}", own.weight_decay)));
  }
  return std::move(differences).Finish().Hint(std::string(kStoreGroups));
}

bool IsPlain(std::string_view name) { return name.find_first_of(".$") == std::string_view::npos; }

// Sets what ranks the checkpoint is cut for, and keeps which the run had.
void TellUncut(const std::string& name, layout::Value none, TrainingRun& run) {
  if (const layout::Value* const said = FindArg(run, name)) {
    run.rank_sizes.emplace_back(name, *said);
  }
  SetArg(name, std::move(none), run);
}

// A run of another program than Megatron or this one has no arguments that say what its model is.
// They are those of its configuration; what it says of itself comes first.
Status DescribeModel(const TrainingState& state, const ModelView& view, TrainingRun& run) {
  if (state.args.contains("num_layers")) return OkStatus();
  layout::Configuration described = state.weights.config;
  for (const auto& [name, value] : view.layout.choices) described[name] = value;
  CKPT_ASSIGN_OR_RETURN(ModelArgs of_model, MegatronArgs(described));
  NamedValues args = std::move(of_model.values);
  AddOrReplace(std::move(run.args), args);
  AddMissing(
      {{std::string(kIteration), run.iteration}, {std::string(kSamples), run.consumed_samples}},
      args);
  run.args = std::move(args);
  return OkStatus();
}

// A vocabulary has no rows then that belong to no token. A run may say how many rows it has, and
// not how many tokens: each row of the model counts as one.
void ForgetPadding(const TrainingState& state, TrainingRun& run) {
  const layout::Value* const tokens = FindArg(run, "vocab_size");
  if (tokens == nullptr || tokens->is_null()) {
    const auto of_model = state.weights.config.find("vocab_size");
    const bool is_known = of_model != state.weights.config.end();
    const layout::Value* const rows =
        is_known ? &of_model->second : FindArg(run, "padded_vocab_size");
    if (rows != nullptr) SetArg("vocab_size", *rows, run);
  }
  std::erase_if(run.args, [](const auto& arg) { return arg.first == "padded_vocab_size"; });
}

bool HasExperts(const TrainingRun& run) {
  const layout::Value* const count = FindArg(run, "num_experts");
  return count != nullptr && count->AsInt() != nullptr && *count->AsInt() > 0;
}

constexpr std::string_view kExpertFreq = "moe_layer_freq";
constexpr std::string_view kLayersApart = "hetereogenous_dist_checkpoint";  // as Megatron spells it

// Which layers have experts; null if a number says it, or nothing.
const layout::Value::List* ListedExperts(const TrainingRun& run) {
  const layout::Value* const freq = FindArg(run, kExpertFreq);
  return freq == nullptr ? nullptr : freq->AsList();
}

bool AsksForLayersApart(const TrainingRun& run) {
  const layout::Value* const apart = FindArg(run, kLayersApart);
  return apart != nullptr && *apart == layout::Value(true);
}

// Whether a number says that some layers alone have experts.
bool HasSteps(const TrainingRun& run) {
  const layout::Value* const freq = FindArg(run, kExpertFreq);
  return freq != nullptr && freq->AsInt() != nullptr && *freq->AsInt() > 1;
}

// Megatron stacks layers unless its arguments list which of them have experts, give these to some
// of them alone, or ask for a key of each layer's own.
bool HasLayersApart(const TrainingRun& run) {
  return ListedExperts(run) != nullptr || HasSteps(run) || AsksForLayersApart(run);
}

// In words that every reader of ours knows, where there are any.
void SayLayersApart(const ModelView& view, TrainingRun& run) {
  const layout::Value* const count = FindArg(run, "num_layers");
  const std::int64_t* const layers = count == nullptr ? nullptr : count->AsInt();
  // Each layer has tensors of its own here: there are no more layers than tensors.
  const bool is_count = layers != nullptr && *layers > 0 && *layers <= std::ssize(view.tensors);
  if (!HasExperts(run) || !is_count) {
    SetArg(kLayersApart, layout::Value(true), run);
    return;
  }
  const auto num_layers = static_cast<std::size_t>(*layers);
  SetArg(kExpertFreq, layout::Value::List(num_layers, layout::Value(1)), run);
}

void SayLayersStacked(TrainingRun& run) {
  const layout::Value::List* const listed = ListedExperts(run);
  // They are all alike, but perhaps all without experts: no number says that.
  const bool are_alike =
      !HasExperts(run) ||
      (listed != nullptr && *listed == layout::Value::List(listed->size(), layout::Value(1)));
  if (are_alike && (listed != nullptr || HasSteps(run))) {
    SetArg(kExpertFreq, layout::Value(1), run);
  }
  if (AsksForLayersApart(run)) SetArg(kLayersApart, layout::Value(false), run);
}

// A loader asks for the keys that the run's model would give to its layers.
void SayLayerKeys(const ModelView& view, TrainingRun& run) {
  const auto keys = view.layout.choices.find("layer_keys");
  if (keys == view.layout.choices.end()) return;
  const bool is_apart = keys->second == "per_layer";
  if (is_apart == HasLayersApart(run)) return;
  if (is_apart) {
    SayLayersApart(view, run);
  } else {
    SayLayersStacked(run);
  }
}

}  // namespace

Status AddOptimizer(const TrainingState& state, const Format& target, const ChosenForms& forms,
                    ModelView& view) {
  const RunFormat& run = *target.run;
  std::vector<std::pair<TargetTensor, TensorRecipe>> moments;
  for (std::size_t m = 0; m < state.moments.size(); ++m) {
    CKPT_ASSIGN_OR_RETURN(ModelView moment, ViewLike(view, state.moments[m]));
    for (std::size_t t = 0; t < moment.tensors.size(); ++t) {
      if (moment.derived[t]) continue;
      const std::string name = NameOf(moment, moment.tensors[t]);
      moment.tensors[t].key = run.moment_key(name, state.moment_names[m]);
      moments.emplace_back(std::move(moment.tensors[t]), std::move(moment.recipes[t]));
    }
  }
  if (run.main_weight_key != nullptr) {
    CKPT_ASSIGN_OR_RETURN(const auto updated, UpdatedLike(view, state));
    CKPT_ASSIGN_OR_RETURN(ModelView main, ViewLike(view, state.weights));
    for (std::size_t t = 0; t < main.tensors.size(); ++t) {
      const std::string name = NameOf(main, main.tensors[t]);
      if (!updated.contains(name)) continue;
      main.tensors[t].key = run.main_weight_key(name, forms);
      Append(std::move(main.tensors[t]), std::move(main.recipes[t]), view);
    }
  }
  for (auto& [tensor, recipe] : moments) Append(std::move(tensor), std::move(recipe), view);
  return OkStatus();
}

Result<TrainingRun> RunForTarget(const TrainingState& state, const Format& target,
                                 const ModelView& view, std::vector<LeftOutEntry>& left_out) {
  TrainingRun run = state.run;
  CKPT_RETURN_IF_ERROR(DescribeModel(state, view, run));
  for (const auto& [name, value] : run.args) {
    if (!IsPlain(name)) left_out.push_back({"args." + name, 0, "not a plain value", true});
  }
  std::erase_if(run.args, [](const auto& arg) { return !IsPlain(arg.first); });
  SetArg("ckpt_format", layout::Value(std::string(target.name)), run);
  for (const char* name : {"tensor_model_parallel_size", "pipeline_model_parallel_size",
                           "expert_model_parallel_size"}) {
    TellUncut(name, layout::Value(std::int64_t{1}), run);
  }
  TellUncut("virtual_pipeline_model_parallel_size", layout::Value(), run);
  run.tensor_ranks = 1;
  if (!target.run->keeps_padding) ForgetPadding(state, run);
  SayLayerKeys(view, run);
  // A program asks for as many groups as it stored.
  const bool keeps_groups =
      target.run->forget_groups == nullptr && IsStoredAs(*state.weights.checkpoint, *target.run);
  CKPT_ASSIGN_OR_RETURN(
      const OptimizerGroups groups,
      OptimizerGroups::Of(state, keeps_groups ? EqualGroups::kApart : EqualGroups::kOne));
  run.groups = groups.groups();
  CKPT_RETURN_IF_ERROR(GroupParameters(state, groups, target, view, run));
  LeaveFrozenOut(state, target, run, left_out);
  if (groups.are_all_named()) LeaveEmptyGroupsOut(target, run, left_out);
  run.others_by_decay = false;
  if (target.run->forget_groups != nullptr) {
    CKPT_RETURN_IF_ERROR(groups.are_all_named() ? CheckReadersTell(state, run, target, view)
                                                : CheckReadersTellNamed(state, run, target));
  }
  return run;
}

void NameModules(const std::map<std::string, std::string>& chosen, TrainingRun& run) {
  const auto impl = chosen.find("transformer_impl");
  if (impl != chosen.end()) SetArg(impl->first, layout::Value(impl->second), run);
  const auto experts = chosen.find("expert_names");
  if (experts == chosen.end() || !HasExperts(run)) return;
  SetArg("moe_grouped_gemm", layout::Value(experts->second == "grouped"), run);
}

NamedValues ArgsForWeights(const layout::Configuration& run, NamedValues of_target,
                           std::vector<LeftOutEntry>& left_out) {
  // Parallel sizes: a checkpoint is not cut.
  static constexpr std::array kOfTarget = {"bf16",
                                           "fp16",
                                           "params_dtype",
                                           "ckpt_format",
                                           "transformer_impl",
                                           "moe_layer_freq",
                                           "moe_grouped_gemm",
                                           "padded_vocab_size",
                                           "tensor_model_parallel_size",
                                           "pipeline_model_parallel_size",
                                           "virtual_pipeline_model_parallel_size",
                                           "context_parallel_size",
                                           "expert_model_parallel_size"};
  static constexpr std::array<std::string_view, 4> kProgress = {
      kIteration, kSamples, "consumed_valid_samples", "skipped_train_samples"};
  const auto is_in = [](const auto& names, std::string_view name) {
    return std::ranges::find(names, name) != names.end();
  };
  NamedValues args = std::move(of_target);
  std::erase_if(args, [](const auto& arg) { return arg.first.starts_with(kOwnPrefix); });
  NamedValues of_run;
  for (const auto& [name, value] : run) {
    if (!IsPlain(name)) {
      left_out.push_back({"args." + name, 0, "not a plain value", true});
    } else if (!is_in(kOfTarget, name) && !is_in(kProgress, name) && !IsOwnFact(name)) {
      of_run.emplace_back(name, value);
    }
  }
  AddOrReplace(std::move(of_run), args);
  return args;
}

Result<std::vector<PickledEntry>> CarryObjectsOfRun(const TrainingState& state,
                                                    const RunFormat& target,
                                                    std::vector<LeftOutEntry>& left_out) {
  std::vector<PickledEntry> carried;
  const OpenedCheckpoint& checkpoint = *state.weights.checkpoint;
  if (!target.carries_objects || !IsStoredAs(checkpoint, target)) return carried;
  std::map<std::string_view, LeftOutEntry*> listed;
  for (LeftOutEntry& entry : left_out) listed.emplace(entry.key, &entry);
  std::set<std::string> gone_along;
  for (const ObjectEntry& object : checkpoint.source->index().objects()) {
    const auto entry = listed.find(object.key);
    if (entry == listed.end() || entry->second->why == kLeftOutOnRequest) continue;
    Result<PickledObject> pickled = ReadAsPickle(*checkpoint.source, object);
    if (pickled.ok()) {
      carried.push_back({object.key, *std::move(pickled)});
      gone_along.insert(object.key);
    } else {
      if (IsOfSystem(pickled.status().kind())) return std::move(pickled).status();
      entry->second->why = pickled.status().first().message;
    }
  }
  std::erase_if(left_out,
                [&](const LeftOutEntry& entry) { return gone_along.contains(entry.key); });
  return carried;
}

std::vector<LeftOutEntry> LeftOutOfRun(const TrainingState& state,
                                       std::vector<LeftOutEntry> left_out) {
  std::erase_if(left_out, [&](const LeftOutEntry& entry) {
    return state.tensors.contains(entry.key) || state.IsOfRun(entry.key);
  });
  for (const UnreadMember& member : state.unread) {
    left_out.push_back({member.where, member.bytes, "no part of a run that other formats have"});
  }
  return left_out;
}

Result<PlannedCheckpoint> PlanRunInRoot(const Format& target, RunRequest request) {
  const RunRoot* const root = target.root;
  PlannedCheckpoint planned;
  if (root == nullptr) {
    CKPT_ASSIGN_OR_RETURN(planned.plan, target.run->plan(std::move(request)));
    return planned;
  }
  planned.checkpoint_directory = root->run_directory(request.run.iteration);
  CKPT_ASSIGN_OR_RETURN(planned.plan, target.run->plan(std::move(request)));
  const std::string below = planned.checkpoint_directory + "/";
  for (WriteFile& file : planned.plan.files) file.name.insert(0, below);
  for (WriteCopy& copy : planned.plan.copies) copy.name.insert(0, below);
  const auto copied = std::ranges::find(planned.plan.files, below + std::string(root->copied_file),
                                        &WriteFile::name);
  if (copied != planned.plan.files.end()) {
    // It has one literal: its whole content.
    const auto file = static_cast<std::uint32_t>(copied - planned.plan.files.begin());
    const auto content = std::ranges::find(planned.plan.literals, file, &WriteLiteral::file);
    CKPT_CHECK(content != planned.plan.literals.end());
    AddFile(std::string(root->copy_name), Bytes(content->bytes), planned.plan);
  }
  AddTextFile(std::string(root->tracker_name), root->tracker_text(planned.checkpoint_directory),
              planned.plan);
  return planned;
}

}  // namespace ckpt
