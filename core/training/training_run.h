// TrainingRun: what a training run stores beside its tensors, in no format's words.
//
// A format encodes it when a run saves, and decodes it when one goes on (formats/<x>). Decoded, it has what a run goes on
// from; what follows from the arguments (rates and their schedule, decay) is encoded for Megatron only.
#ifndef CKPT_CORE_TRAINING_TRAINING_RUN_H_
#define CKPT_CORE_TRAINING_TRAINING_RUN_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "core/layout/value.h"

namespace ckpt {

// Parameters that the optimizer treats alike.
struct ParamGroup {
  bool is_expert_parallel = false;
  double wd_mult = 1;  // of the run's weight decay
  double lr_mult = 1;  // of the schedule's rate
  double max_lr = 0;
  double min_lr = 0;
  double lr = 0;  // of the next update
  std::array<double, 2> betas = {0.9, 0.999};
  double eps = 1e-8;
  double weight_decay = 0;  // wd_mult applied
  std::int64_t step = 0;    // finished updates; decoded, too

  friend bool operator==(const ParamGroup&, const ParamGroup&) = default;
};

// Learning rate and weight decay over the run; everything that counts, counts samples.
struct RunSchedule {
  double max_lr = 0;
  double min_lr = 0;
  std::int64_t lr_warmup_steps = 0;
  std::int64_t num_steps = 0;  // where the run is; decoded, too
  std::string lr_decay_style = "constant";
  std::int64_t lr_decay_steps = 0;
  double start_wd = 0;
  double end_wd = 0;
  std::string wd_incr_style = "constant";
  std::int64_t wd_incr_steps = 0;

  friend bool operator==(const RunSchedule&, const RunSchedule&) = default;
};

struct TrainingRun {
  // The run's arguments under Megatron's names, in the order in which they are stored; null for None. What Megatron has no
  // argument for is among them, too (converters/config/own_args.h).
  std::vector<std::pair<std::string, layout::Value>> args = {};
  std::int64_t iteration = 0;                // finished ones
  std::int64_t consumed_samples = 0;         // of the training data; `args` say it to Megatron
  double num_floating_point_operations = 0;  // so far
  RunSchedule schedule = {};
  std::vector<ParamGroup> groups = {};
  // Every trained parameter under the format's name without wrappers ("decoder.layers.0.mlp.linear_fc1.weight"; encoded, also
  // its halves), and its position in `groups`.
  std::vector<std::pair<std::string, std::size_t>> group_of = {};
  std::uint64_t seed = 0;  // of the random states, which Megatron asks for
  int tensor_ranks = 1;    // each of which asks for states of its own

  // Of the optimizer: the same for all groups.
  [[nodiscard]] std::int64_t finished_updates() const {
    return groups.empty() ? 0 : groups.front().step;
  }

  friend bool operator==(const TrainingRun&, const TrainingRun&) = default;
};

// What a checkpoint keeps of the optimizer for every weight that it updates, such as "exp_avg".
struct StoredMoment {
  std::string name;
  // Key of each tensor → the weight that it belongs to, under the format's own name without prefix.
  std::map<std::string, std::string> weight_of;
};

// A run as a checkpoint holds it. Without `groups` the checkpoint has no state of an optimizer.
struct StoredRun {
  TrainingRun run;
  std::vector<StoredMoment> moments;  // in the order of the optimizer
};

}  // namespace ckpt

#endif  // CKPT_CORE_TRAINING_TRAINING_RUN_H_
