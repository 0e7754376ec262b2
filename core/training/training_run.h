// TrainingRun: what a training run stores in addition to its tensors, independent of any format.
//
// A format encodes it when a run saves, and decodes it when a run resumes (formats/<x>). The
// decoded value holds the same, so that what resumes can tell whether it does what the run did.
#ifndef CKPT_CORE_TRAINING_TRAINING_RUN_H_
#define CKPT_CORE_TRAINING_TRAINING_RUN_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/base/status.h"
#include "core/layout/value.h"
#include "core/training/rank_buffers.h"

namespace ckpt {

// What SGD has in place of betas and eps.
struct SgdSettings {
  double momentum = 0;
  double dampening = 0;
  bool nesterov = false;

  friend bool operator==(const SgdSettings&, const SgdSettings&) = default;
};

// Parameters that the optimizer treats in the same way.
struct ParamGroup {
  bool is_expert_parallel = false;
  double wd_mult = 1;  // factor for the run's weight decay
  double lr_mult = 1;  // factor for the schedule's rate
  double max_lr = 0;
  double min_lr = 0;
  double lr = 0;  // the rate of the next update
  std::array<double, 2> betas = {0.9, 0.999};
  double eps = 1e-8;
  std::optional<SgdSettings> sgd = {};  // nothing: of Adam
  double weight_decay = 0;              // including wd_mult
  std::int64_t step = 0;                // finished updates
  // What Megatron's versions say of the embedding and the head if these have a rate of their own
  // (decoupled_lr): that it is so, or that the group's rate is not the run's.
  bool is_decoupled_lr = false;
  bool default_config = true;
  // What else the checkpoint says of the group, sorted: members that belong to another program's
  // optimizer or schedule. They go along.
  std::vector<std::pair<std::string, layout::Value>> others = {};

  [[nodiscard]] bool has_own_rate() const { return is_decoupled_lr || !default_config; }

  friend bool operator==(const ParamGroup&, const ParamGroup&) = default;
};

// Whether a member of a torch group says how an update is computed, and not what it is.
[[nodiscard]] bool IsHowComputed(std::string_view member);

// Whether it says which part of the update is computed by the CPU (Megatron-Core's
// HybridDeviceOptimizer): a setting of the program that goes on, and perhaps a class of it.
[[nodiscard]] bool IsWhereComputed(std::string_view member);

// Whether they differ at most in whether their parameters are experts.
[[nodiscard]] bool AreOneWithoutExperts(ParamGroup a, ParamGroup b);

// Learning rate and weight decay over the run. All step numbers count samples.
struct RunSchedule {
  double max_lr = 0;
  double min_lr = 0;
  std::int64_t lr_warmup_steps = 0;
  std::int64_t num_steps = 0;  // where the run is
  std::string lr_decay_style = "constant";
  std::int64_t lr_decay_steps = 0;
  double start_wd = 0;
  double end_wd = 0;
  std::string wd_incr_style = "constant";
  std::int64_t wd_incr_steps = 0;

  friend bool operator==(const RunSchedule&, const RunSchedule&) = default;
};

struct TrainingRun {
  // The run's arguments with Megatron's names, in the order in which they are stored; null means
  // None. They include our own arguments for facts that Megatron cannot express
  // (converters/config/own_args.h).
  std::vector<std::pair<std::string, layout::Value>> args = {};
  std::int64_t iteration = 0;                // finished iterations
  std::int64_t consumed_samples = 0;         // of the training data; Megatron reads it from `args`
  double num_floating_point_operations = 0;  // so far
  RunSchedule schedule = {};
  std::vector<ParamGroup> groups = {};
  // Every trained parameter by its live name without wrappers, with fc1 as one parameter
  // ("decoder.layers.0.mlp.linear_fc1.weight"), and its position in `groups`. If
  // `others_by_decay`, those are not named that follow from whether they decay.
  std::vector<std::pair<std::string, std::size_t>> group_of = {};
  bool others_by_decay = false;
  // Parameters that the optimizer has in a group and keeps nothing for: they are frozen.
  std::vector<std::pair<std::string, std::size_t>> frozen_of = {};
  std::uint64_t seed = 0;  // for the random states that Megatron requires
  // Each of these ranks needs its own random states.
  int tensor_ranks = 1;
  int pipeline_ranks = 1;
  // Of the ranks that stored the run: those arguments that say how many there are of each kind, and
  // the buffers in which they keep what the optimizer stores, if they stored these.
  std::vector<std::pair<std::string, layout::Value>> rank_sizes = {};
  RankBuffers buffers = {};

  // Updates that the optimizer finished: the same number for all groups.
  [[nodiscard]] std::int64_t finished_updates() const {
    return groups.empty() ? 0 : groups.front().step;
  }

  [[nodiscard]] bool uses_sgd() const { return !groups.empty() && groups.front().sgd.has_value(); }

  friend bool operator==(const TrainingRun&, const TrainingRun&) = default;
};

// An argument of ours: the first parameter of each group, in the order of the groups, where a
// format stores groups by parameter. A scheduler of torch knows groups by their positions.
inline constexpr std::string_view kGroupOrder = "ckptkit_group_order";

// Null if the run has no argument of this name.
[[nodiscard]] const layout::Value* FindArg(const TrainingRun& run, std::string_view name);

// Replaces the argument, or adds it behind the others.
void SetArg(std::string_view name, layout::Value value, TrainingRun& run);

// The weight decay of the group that decays most; 0 without groups.
[[nodiscard]] double LargestDecay(const std::vector<ParamGroup>& groups);

// A value that the checkpoint stores for every weight that the optimizer updates, such as
// "exp_avg".
struct StoredMoment {
  std::string name;
  // From the key of each tensor to the weight it belongs to: the format's own name without prefix.
  std::map<std::string, std::string> weight_of;
};

// Which tensors of a checkpoint an optimizer keeps.
struct OptimizerTensors {
  std::vector<StoredMoment> moments;  // in the optimizer's order
  // Where the model's weights are rounded copies: from the key of each tensor to the weight whose
  // exact value it is. Empty: the weights are exact.
  std::map<std::string, std::string> main_weights = {};
};

// Names of settings (core/training/run_settings.h).
using SettingNames = std::set<std::string, std::less<>>;

// What lies in an object beside a run, such as a program's own state.
struct UnreadMember {
  std::string where;
  std::uint64_t bytes = 0;  // of its tensors
};

// A run as a checkpoint holds it.
struct StoredRun : OptimizerTensors {
  TrainingRun run = {};
  // Keys of the objects, or how they begin, that `run` was read from.
  std::vector<std::string> decoded = {};
  // Keys of the tensors that `run` was read from.
  std::vector<std::string> decoded_tensors = {};
  // Members of those objects that no run has, by their places there.
  std::vector<UnreadMember> unread = {};
  // What who takes `run` to another format, or goes on with it, should tell.
  std::vector<Problem> warnings = {};
  // The same of who stores `run` in its own format: what was taken for granted.
  std::vector<Problem> assumptions = {};
  // The settings of `run` that the checkpoint says. The others are defaults, or follow from these.
  SettingNames said = {};
  // Whether Adam's weight decay is decoupled, as its groups say it; nothing: they do not.
  std::optional<bool> decouples_decay = {};
};

// Adam keeps moments of every parameter, and SGD those of groups with momentum. Errors: kMissing
// (updates were made and none are there), kUnsupported (groups differ in it: a parameter without
// one may be trained or frozen). REQUIRES: the groups say their updates.
[[nodiscard]] Status CheckKeepsMoments(const StoredRun& stored);

}  // namespace ckpt

#endif  // CKPT_CORE_TRAINING_TRAINING_RUN_H_
