// Optimizer: AdamW or SGD over the arrays that a ParamStore owns.
#ifndef CKPT_TRAINER_OPTIM_OPTIMIZER_H_
#define CKPT_TRAINER_OPTIM_OPTIMIZER_H_

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "core/base/result.h"
#include "trainer/device/device.h"
#include "trainer/ops/ops.h"
#include "trainer/optim/host_moments.h"
#include "trainer/params/param_store.h"
#include "trainer/params/piece_rows.h"
#include "trainer/params/shard_plan.h"

namespace ckpt::trainer {

enum class OptimizerKind : std::uint8_t { kAdam, kSgd };

struct OptimizerConfig {
  OptimizerKind kind = OptimizerKind::kAdam;
  double adam_beta1 = 0.9;
  double adam_beta2 = 0.999;
  double adam_eps = 1e-8;
  bool decoupled_weight_decay = true;
  double sgd_momentum = 0.9;
  double weight_decay = 0.01;
  // Decay every parameter, also norms and biases; otherwise only those that Megatron decays
  // (weight_decay.h).
  bool decay_all = false;
  bool decay_query_key_norms = false;  // these vectors, too
  // The moments stay in the host's memory, and blocks of them pass through the device in an update.
  bool moments_on_host = false;
  std::int64_t host_block_elems = HostMoments::kBlockElems;
};

// Errors: kUsage, all violations at once.
Status ValidateOptimizer(const OptimizerConfig& config);

// The optimizer's arrays per weight: 2 for AdamW, 1 for SGD.
[[nodiscard]] int NumMoments(const OptimizerConfig& config);

// PlanBytes with the optimizer's part as the optimizer allocates it. `host_bytes`, if it is not
// null, is set to what the optimizer holds in the host's memory.
[[nodiscard]] PlannedBytes PlanTrainingBytes(const OptimizerConfig& config, const ShardPlan& plan,
                                             std::uint64_t* host_bytes = nullptr);

// Thread-safety: the rank's thread.
class Optimizer {
 public:
  // The optimizer's state of one group, parallel to its main weights: exp_avg and exp_avg_sq, or
  // the momentum.
  struct State {
    std::size_t group = 0;        // index among the store's mains
    std::vector<Tensor> moments;  // empty if they are on the host
  };

  // `store`, `ops` and `device` outlive it. Errors: kSystem.
  static Result<Optimizer> Create(const OptimizerConfig& config, ParamStore& store, Ops& ops,
                                  Device& device);

  // What update number `steps() + 1` needs from the host.
  [[nodiscard]] UpdateScalars NextScalars(double lr) const;
  // Enqueues on `queue`, the store's compute queue, update number `steps() + 1` of every trained
  // weight, with the UpdateScalars on the device, and tells the store after each unit. If the
  // device skips it, the caller sets the number of updates back.
  void Step(Queue& queue, const Tensor& update);

  // Sets moment number `moment` of every weight that this rank updates, from float32, and blocks;
  // or enqueues copies of it to the host as ParamStore::ReadWeights does. Moments that are on the
  // host are copied before ReadMoment returns.
  //
  // REQUIRES: 0 <= moment < NumMoments. Errors: those of `fill` and of the queue, kSystem.
  Status SetMoment(int moment, const FillRows& fill, Queue& queue);
  Status ReadMoment(int moment, const PlaceRows& place, Queue& queue);

  [[nodiscard]] std::int64_t steps() const { return steps_; }
  void set_steps(std::int64_t steps) { steps_ = steps; }
  [[nodiscard]] const std::vector<State>& states() const { return states_; }

 private:
  // Consecutive elements with the same settings.
  struct Run {
    std::size_t state = 0;
    std::int64_t begin = 0;
    std::int64_t elems = 0;
    bool decays = false;
  };

  Optimizer(const OptimizerConfig& config, ParamStore& store, Ops& ops)
      : config_(config), store_(&store), ops_(&ops) {}
  void AddRuns(std::size_t state, const MainArrays& main);
  void UpdateRun(Queue& queue, const Tensor& update, const Run& run);
  // Enqueues the update of a run's elements [first, first + elems), whose moments are given.
  void UpdatePart(Queue& queue, const Tensor& update, const Run& run, std::int64_t first,
                  std::int64_t elems, std::span<const Tensor> moments);

  OptimizerConfig config_;
  ParamStore* store_;
  Ops* ops_;
  std::vector<Buffer> memory_;
  std::optional<HostMoments> host_;
  std::vector<State> states_;
  std::vector<Run> runs_;
  std::int64_t steps_ = 0;
};

}  // namespace ckpt::trainer

#endif  // CKPT_TRAINER_OPTIM_OPTIMIZER_H_
