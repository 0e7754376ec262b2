// Optimizer: AdamW or SGD over the arrays that a ParamStore owns.
#ifndef CKPT_TRAINER_OPTIM_OPTIMIZER_H_
#define CKPT_TRAINER_OPTIM_OPTIMIZER_H_

#include <cstdint>
#include <memory>
#include <string_view>
#include <vector>

#include "core/base/result.h"
#include "trainer/device/device.h"
#include "trainer/ops/ops.h"
#include "trainer/optim/schedule.h"
#include "trainer/params/param_store.h"

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
};

// Errors: kUsage, all violations at once.
Status ValidateOptimizer(const OptimizerConfig& config);

// The optimizer's arrays per weight: 2 for AdamW, 1 for SGD.
[[nodiscard]] int NumMoments(const OptimizerConfig& config);

// Thread-safety: the rank's thread.
class Optimizer {
 public:
  // The optimizer's state of one group, parallel to its main weights: exp_avg and exp_avg_sq, or
  // the momentum.
  struct State {
    std::size_t group = 0;  // index among the store's mains
    std::vector<Tensor> moments;
  };

  // `store`, `ops` and `device` outlive it. Errors: kSystem.
  static Result<Optimizer> Create(const OptimizerConfig& config, ParamStore& store, Ops& ops,
                                  Device& device);

  // What update number `steps() + 1` needs from the host.
  [[nodiscard]] UpdateScalars NextScalars(double lr) const;
  // Enqueues on `queue` update number `steps() + 1` of every trained weight, with the UpdateScalars
  // on the device. If the device skips it, the caller sets the number of updates back.
  void Step(Queue& queue, const Tensor& update);

  // Sets moment number `moment` of every weight that this rank updates, from float32, and blocks;
  // or enqueues copies of it to the host as ParamStore::ReadWeights does.
  //
  // REQUIRES: 0 <= moment < NumMoments. Errors: those of `fill` and of the queue, kSystem.
  Status SetMoment(int moment, const ParamStore::FillRows& fill, Queue& queue);
  Status ReadMoment(int moment, const ParamStore::PlaceRows& place, Queue& queue);

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

  OptimizerConfig config_;
  ParamStore* store_;
  Ops* ops_;
  std::vector<Buffer> memory_;
  std::vector<State> states_;
  std::vector<Run> runs_;
  std::int64_t steps_ = 0;
};

}  // namespace ckpt::trainer

#endif  // CKPT_TRAINER_OPTIM_OPTIMIZER_H_
