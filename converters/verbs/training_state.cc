#include "converters/verbs/training_state.h"

#include <algorithm>
#include <array>
#include <memory>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <utility>

#include <fmt/format.h>

#include "converters/config/run_args.h"
#include "converters/verbs/stored_objects.h"

namespace ckpt {
namespace {

constexpr std::string_view kFormat = "fsdp_dtensor";
constexpr std::string_view kStatePrefix = "optimizer.state.";
constexpr std::string_view kGroupPrefix = "optimizer.param_to_group_meta.";
constexpr std::string_view kStepSuffix = ".step";
constexpr std::array<std::string_view, 2> kMomentsOfAdam = {"exp_avg", "exp_avg_sq"};
constexpr std::array<std::string_view, 1> kMomentsOfSgd = {"momentum_buffer"};
constexpr std::string_view kSchedulePosition = "opt_param_scheduler.num_steps";

// The parameter between `prefix` and `suffix`, without the wrappers that the live module stood in.
std::optional<std::string> ParameterIn(std::string_view key, std::string_view prefix,
                                       std::string_view suffix) {
  if (!key.starts_with(prefix) || !key.ends_with(suffix)) return std::nullopt;
  key.remove_prefix(prefix.size());
  if (key.size() <= suffix.size()) return std::nullopt;
  key.remove_suffix(suffix.size());
  constexpr std::string_view kWrapper = "module.";
  while (key.starts_with(kWrapper)) key.remove_prefix(kWrapper.size());
  return std::string(key);
}

// The parameters that the optimizer updates, and how often it did.
struct UpdatedParameters {
  std::vector<std::string> names;  // as the live module has them, fc1 in one piece
  std::int64_t updates = 0;
};

Result<UpdatedParameters> ReadUpdates(const CheckpointSource& source) {
  UpdatedParameters updated;
  for (const ObjectEntry& object : source.index().objects()) {
    const auto name = ParameterIn(object.key, kGroupPrefix, kStepSuffix);
    if (!name) continue;
    CKPT_ASSIGN_OR_RETURN(const std::int64_t updates, ReadStoredInteger(source, object.key));
    if (!updated.names.empty() && updates != updated.updates) {
      return Error(ErrorKind::kUnsupported, "parameters were updated unequally often")
          .Tensor(object.key)
          .Expected(fmt::format("{} updates", updated.updates))
          .Actual(fmt::format("{}", updates));
    }
    updated.updates = updates;
    updated.names.push_back(*name);
  }
  if (updated.names.empty()) {
    return Error(ErrorKind::kMissing, "nothing says how often the optimizer updated the weights")
        .Expected(fmt::format("objects {}*{}", kGroupPrefix, kStepSuffix))
        .Hint(
            "a conversion has no optimizer, and a run may leave it out: ckpt-train --set "
            "finetune=true takes the weights alone");
  }
  return updated;
}

// What the optimizer keeps for every weight it updates.
std::span<const std::string_view> MomentsIn(const CheckpointIndex& index) {
  const auto is_of_sgd =
      [suffix = fmt::format(".{}", kMomentsOfSgd.front())](const GlobalTensor& tensor) {
        return ParameterIn(tensor.key, kStatePrefix, suffix).has_value();
      };
  if (std::ranges::any_of(index.tensors(), is_of_sgd)) return kMomentsOfSgd;
  return kMomentsOfAdam;
}

// The moment's tensors, taken for the weights they belong to.
Result<ModelSource> UnderstandMoment(Storage& storage, const ModelSource& weights,
                                     std::string_view moment,
                                     const std::vector<std::string>& updated,
                                     const OpenModelOptions& options) {
  const std::string suffix = fmt::format(".{}", moment);
  OpenModelOptions as_weights = options;
  as_weights.naming = kFormat;
  as_weights.only = {fmt::format("{}*{}", kStatePrefix, suffix)};
  as_weights.drop.clear();
  as_weights.rename.clear();
  std::set<std::string> present;
  for (const GlobalTensor& tensor : weights.source().index().tensors()) {
    const auto name = ParameterIn(tensor.key, kStatePrefix, suffix);
    if (!name) continue;
    present.insert(*name);
    as_weights.rename[tensor.key] = *name;
  }
  Status absent;
  for (const std::string& name : updated) {
    const bool is_present =
        present.contains(name) || (present.contains(name + "_w") && present.contains(name + "_v"));
    if (is_present) continue;
    absent.Add(Error(ErrorKind::kMissing, "a trained weight has no moment of the optimizer")
                   .File(weights.checkpoint->path.string())
                   .Tensor(fmt::format("{}*{}{}", kStatePrefix, name, suffix)));
  }
  CKPT_RETURN_IF_ERROR(absent);
  return UnderstandModel(storage, weights.checkpoint, as_weights);
}

// Nothing if the argument is absent or None.
template <typename T>
Result<std::optional<T>> OptionalArgument(const layout::Configuration& args, std::string_view name,
                                          const T* (layout::Value::*as)() const) {
  const auto found = args.find(name);
  if (found == args.end() || found->second.is_null()) return std::optional<T>();
  if (const T* value = (found->second.*as)()) return std::optional<T>(*value);
  return Error(ErrorKind::kBadMetadata, fmt::format("argument {} is of the wrong kind", name))
      .Tensor("args")
      .Actual(layout::FormatValue(found->second));
}

Result<std::int64_t> IntegerArgument(const layout::Configuration& args, std::string_view name) {
  CKPT_ASSIGN_OR_RETURN(const std::optional<std::int64_t> number,
                        OptionalArgument(args, name, &layout::Value::AsInt));
  if (number) return *number;
  return Error(ErrorKind::kMissing, fmt::format("args have no {}", name)).Tensor("args");
}

// The scheduler counts samples, in whole batches.
Status CheckSchedule(const CheckpointSource& source, const TrainingState& state) {
  CKPT_ASSIGN_OR_RETURN(const std::int64_t samples, ReadStoredInteger(source, kSchedulePosition));
  CKPT_ASSIGN_OR_RETURN(const std::int64_t batch, IntegerArgument(state.args, "global_batch_size"));
  if (batch > 0 && samples % batch == 0 && samples / batch == state.finished_updates) {
    return OkStatus();
  }
  return Error(ErrorKind::kUnsupported, "the learning rate is not where the optimizer is")
      .Tensor(kSchedulePosition)
      .Expected(fmt::format("{} updates of {} samples", state.finished_updates, batch))
      .Actual(fmt::format("{} samples", samples));
}

Status ReadProgress(const CheckpointSource& source, TrainingState& state) {
  CKPT_ASSIGN_OR_RETURN(state.args, ReadMegatronArgs(source));
  CKPT_ASSIGN_OR_RETURN(state.iteration, ReadStoredInteger(source, "iteration"));
  CKPT_ASSIGN_OR_RETURN(state.consumed_samples,
                        IntegerArgument(state.args, "consumed_train_samples"));
  CKPT_ASSIGN_OR_RETURN(state.seed, OptionalArgument(state.args, "seed", &layout::Value::AsInt));
  CKPT_ASSIGN_OR_RETURN(state.state_digest,
                        OptionalArgument(state.args, kStateDigest, &layout::Value::AsText));
  CKPT_ASSIGN_OR_RETURN(state.next_loss,
                        OptionalArgument(state.args, kNextLoss, &layout::Value::AsFloat));
  CKPT_ASSIGN_OR_RETURN(state.run_id, OptionalArgument(state.args, kRunId, &layout::Value::AsText));
  CKPT_ASSIGN_OR_RETURN(state.data_identity,
                        OptionalArgument(state.args, kDataIdentity, &layout::Value::AsText));
  return CheckSchedule(source, state);
}

}  // namespace

Result<TrainingState> OpenTrainingState(Storage& storage, const Path& path,
                                        const OpenModelOptions& options) {
  CKPT_ASSIGN_OR_RETURN(OpenedCheckpoint checkpoint, OpenCheckpoint(storage, path, options.open));
  return UnderstandTrainingState(
      storage, std::make_shared<const OpenedCheckpoint>(std::move(checkpoint)), options);
}

Result<TrainingState> UnderstandTrainingState(Storage& storage,
                                              std::shared_ptr<const OpenedCheckpoint> checkpoint,
                                              const OpenModelOptions& options) {
  TrainingState state;
  CKPT_ASSIGN_OR_RETURN(state.weights, UnderstandModel(storage, std::move(checkpoint), options));
  const CheckpointSource& source = state.weights.source();
  const std::string file = state.weights.checkpoint->path.string();

  Result<UpdatedParameters> updated = ReadUpdates(source);
  if (!updated.ok()) return std::move(updated).status().File(file);
  state.finished_updates = updated->updates;
  for (const std::string_view moment : MomentsIn(source.index())) {
    CKPT_ASSIGN_OR_RETURN(
        state.moments.emplace_back(),
        UnderstandMoment(storage, state.weights, moment, updated->names, options));
  }
  if (Status status = ReadProgress(source, state); !status.ok()) {
    return std::move(status).File(file);
  }
  return state;
}

}  // namespace ckpt
