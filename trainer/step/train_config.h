// TrainConfig: all settings of a training run, validated as a whole before anything starts.
#ifndef CKPT_TRAINER_STEP_TRAIN_CONFIG_H_
#define CKPT_TRAINER_STEP_TRAIN_CONFIG_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "core/base/status.h"
#include "trainer/device/gpu_collectives.h"
#include "trainer/mesh/topology.h"
#include "trainer/model/model.h"
#include "trainer/model/model_config.h"
#include "trainer/optim/optimizer.h"
#include "trainer/optim/schedule.h"
#include "trainer/params/shard_plan.h"
#include "trainer/step/expert_choice.h"

namespace ckpt::trainer {

enum class Reduction : std::uint8_t {
  kTree,       // floating point, in a fixed tree over the ranks
  kCanonical,  // fixed point: the same bits on every mesh; products in one fixed order
};

struct TrainConfig {
  ModelConfig model;
  MeshConfig mesh;
  Precision precision;
  // Why mesh.expert_parallel is what it is, if the run left it open.
  std::optional<ExpertChoice> expert_choice = {};
  Dispatcher dispatcher = Dispatcher::kAllToAll;
  // Memory for the rows that the experts of a rank get, as a multiple of the mean; a step that
  // needs more fails. None: for the most rows that can come.
  std::optional<double> rank_capacity_factor;
  Reduction reduction = Reduction::kTree;
  bool deterministic = false;  // two runs give the same bits; the CPU's always do
  // A file that says which of the library's algorithms computes which product; empty: the library
  // chooses. See ProductAlgorithms.
  std::string product_algorithms = {};
  Recompute recompute = Recompute::kNone;
  std::int64_t loss_chunk_tokens = 4096;  // see ModelRuntime
  // If true, a step's loss is the mean over all its counted tokens. Otherwise it is the mean over
  // its micro-batches of their means.
  bool per_token_loss = false;

  std::int64_t micro_batch_size = 1;   // sequences that a rank computes at once
  std::int64_t global_batch_size = 1;  // sequences of a step on all ranks
  std::int64_t seq_length = 0;

  OptimizerConfig optimizer;
  ScheduleConfig schedule;
  double clip_grad = 1;  // largest norm of the gradients; 0: no clipping
  std::uint64_t seed = 1234;
  // Shell patterns of the names of parameters that are not trained (`*` also matches dots).
  std::vector<std::string> frozen;

  SlotOptions slots;
  std::uint64_t max_unsharded_bytes = 0;  // limit for slots and ends; 0: none
  // Whether communication runs in parallel with the computation. None: if the device works while
  // the host goes on, as a GPU does.
  std::optional<bool> overlap_grad_reduce = {};
  std::optional<bool> overlap_param_gather = {};  // none: as overlap_grad_reduce
  GpuCollectives gpu_collectives = GpuCollectives::kAuto;
  bool poison_released = false;  // see ParamStoreOptions

  [[nodiscard]] std::int64_t num_micro_batches() const {
    return global_batch_size / (micro_batch_size * mesh.world_size);
  }
  [[nodiscard]] ShardPlanOptions plan_options() const {
    return {.precision = precision, .slots = slots, .num_micro_batches = num_micro_batches()};
  }
  // On a device that works while the host goes on, or not.
  [[nodiscard]] bool overlaps_reduces(bool is_asynchronous) const {
    return overlap_grad_reduce.value_or(is_asynchronous);
  }
  [[nodiscard]] bool overlaps_gathers(bool is_asynchronous) const {
    return overlap_param_gather.value_or(overlaps_reduces(is_asynchronous));
  }
  // Whether ranks that compute on the host need threads that communicate meanwhile.
  [[nodiscard]] bool overlaps_on_host() const {
    return overlaps_reduces(false) || overlaps_gathers(false);
  }
};

// kCanonical sets the precision that it needs (fixed-point sums) in `config.precision`.
void ApplyReduction(TrainConfig& config);

// Errors: kUsage, all violations at once, each with a hint how to fix it.
Status ValidateTrainConfig(const TrainConfig& config);

// Errors: kUsage (slots and ends of `plan` need more than max_unsharded_bytes; names the bytes and
// what would fit).
Status CheckUnshardedBytes(const TrainConfig& config, const ShardPlan& plan);

}  // namespace ckpt::trainer

#endif  // CKPT_TRAINER_STEP_TRAIN_CONFIG_H_
