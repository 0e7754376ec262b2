// RankTrainer: one rank of a training run. It joins model, sharded parameters and optimizer into a
// step.
#ifndef CKPT_TRAINER_STEP_RANK_TRAINER_H_
#define CKPT_TRAINER_STEP_RANK_TRAINER_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "core/base/result.h"
#include "trainer/comm/host_group.h"
#include "trainer/device/device.h"
#include "trainer/model/model.h"
#include "trainer/ops/ops.h"
#include "trainer/optim/optimizer.h"
#include "trainer/params/param_store.h"
#include "trainer/params/piece_rows.h"
#include "trainer/step/rank_phases.h"
#include "trainer/step/step_buffers.h"
#include "trainer/step/train_config.h"

namespace ckpt::trainer {

// What a rank computes with. Both outlive the trainer.
struct TrainerRuntime {
  Device* device = nullptr;
  Ops* ops = nullptr;
  int host_threads = 1;  // of DrawWeights
  // For measurements of models with experts: the experts [T, K] of the tokens of every micro-batch,
  // in every layer. Empty: the router chooses. Read by Create only.
  std::span<const std::int32_t> assigned_experts = {};
};

// Equal on every rank, except `phase_ms`.
struct StepReport {
  std::int64_t step = 0;  // counted from 1
  double loss = 0;        // of the whole batch, without auxiliary losses
  double aux_loss = 0;    // mean over the micro-batches
  double grad_norm = 0;   // before clipping
  double lr = 0;
  std::int64_t tokens = 0;  // counted tokens of all ranks
  // The peak device memory of the rank that has used most, up to now.
  std::uint64_t peak_bytes = 0;
  // For models with experts. `most` and `least`: rows of the most and least used expert of any
  // layer, divided by the mean of its layer. `dropped`: choices dropped in all layers because
  // experts had no room.
  struct ExpertLoad {
    double most = 1;
    double least = 1;
    std::int64_t dropped = 0;
  };
  std::optional<ExpertLoad> experts = {};
  // Whether a rank voted to end the run.
  bool is_stop_asked = false;
  // By StepPhase: how long this rank's compute queue was in each, by the device's clock. The time
  // before the step, since the work of the last one had ended, is that of kIdle.
  std::array<double, kNumStepPhases> phase_ms{};
  // The same of all ranks, of the last step that was collected when this one was enqueued: the
  // times travel with a step's sums. Where there are several ranks and such a step.
  std::optional<RankPhases> rank_phases = {};
};

struct Evaluation {
  double loss = 0;  // as a step on the same micro-batches would report it
  std::int64_t tokens = 0;
};

// Thread-safety: the rank's thread. Every rank makes the same calls.
class RankTrainer {
 public:
  // REQUIRES: the configuration is valid, and `world` has its world_size ranks. Errors: kSystem,
  // kCancelled, those of CheckUnshardedBytes and Ops::CheckSupports.
  static Result<std::unique_ptr<RankTrainer>> Create(const TrainConfig& config, HostGroup& world,
                                                     const TrainerRuntime& runtime);
  virtual ~RankTrainer() = default;

  // Draws weights from (seed, name, row): the same on every mesh.
  virtual Status InitializeWeights() = 0;
  // Sets every parameter and every replicated buffer. Errors: those of ParamStore::SetWeights.
  virtual Status SetWeights(const FillRows& fill) = 0;
  // The same, where `host_threads` threads call `fill` at once.
  virtual Status DrawWeights(const FillRows& fill) = 0;
  // Sets the optimizer's state of every weight that this rank updates: for AdamW, moment 0 is
  // exp_avg and 1 exp_avg_sq; for SGD, 0 is the momentum. Set the number of updates by
  // `optimizer().set_steps`; the learning rate depends on it too. Errors: those of SetWeights.
  virtual Status SetMoment(int moment, const FillRows& fill) = 0;
  // Begin to copy the requested rows to the host: the rows that this rank owns, and every
  // replicated buffer. The copy has the values of now: what is enqueued later changes them only
  // when they are copied. `place` is called before the call returns; the places stay valid until
  // AwaitReads. REQUIRES: a place has the size of its piece. Errors: kSystem.
  virtual Status ReadWeights(const PlaceRows& place) = 0;
  virtual Status ReadMoment(int moment, const PlaceRows& place) = 0;
  // Waits for these copies. Another thread may call it while no read begins. Errors: those of the
  // queue.
  virtual Status AwaitReads() = 0;

  // Enqueues one update from this rank's micro-batches, `config.num_micro_batches()` of them, and
  // returns without waiting for the device. `asks_to_stop` (may be empty) is called late in the
  // call; if it returns true, this rank votes to end the run. `batches` may change after the call.
  //
  // A step that fails because of its numbers (Collect) changes nothing: neither parameters nor
  // moments, expert biases or the number of updates. Nor do the steps that are enqueued behind it.
  //
  // REQUIRES: num_in_flight() < max_in_flight(). Errors: kSystem, those of the queue.
  using Vote = std::function<bool()>;
  virtual Status Enqueue(std::span<const HostMicroBatch> batches, const Vote& asks_to_stop) = 0;
  // Waits for the oldest step in flight. After an error no step is in flight.
  //
  // REQUIRES: a step is in flight. Errors: kValueMismatch (a loss or gradient is not finite: names
  // micro-batch or parameter), kUsage (moe_expert_rank_capacity_factor is too small for the
  // tokens), kCancelled (a rank is gone).
  virtual Result<StepReport> Collect() = 0;
  [[nodiscard]] virtual int num_in_flight() const = 0;
  // How many steps may be enqueued before the first is collected: 1 if work runs when it is
  // enqueued.
  [[nodiscard]] virtual int max_in_flight() const = 0;
  // Both for one step.
  Result<StepReport> Step(std::span<const HostMicroBatch> batches) {
    CKPT_RETURN_IF_ERROR(Enqueue(batches, {}));
    return Collect();
  }

  // All calls below are made while no step is in flight.

  // Computes the gradients of a step, for ReadGradient, and updates nothing. The report has no lr.
  virtual Result<StepReport> ComputeGradients(std::span<const HostMicroBatch> batches) = 0;
  // The gradient of all of `main`, one of `params().mains()`, as the last step used it for its
  // update: averaged, and clipped unless the step was ComputeGradients. Blocks.
  //
  // REQUIRES: the group is trained. Errors: kSystem, those of the queue.
  virtual Result<std::vector<float>> ReadGradient(const MainArrays& main) = 0;
  // Changes nothing that a step reads. Errors: those of Step that concern the loss.
  virtual Result<Evaluation> Evaluate(std::span<const HostMicroBatch> batches) = 0;
  // For measurements: from now on no weights are gathered and no gradients are reduced. Every rank
  // calls it. A step then takes the time of its computation, and its numbers are wrong.
  virtual void LeaveOutTransfers() = 0;
  // Logits [batch · seq, padded vocabulary] of one batch, float32, C order. Every rank computes
  // those of its own batch.
  virtual Result<std::vector<float>> Logits(const HostMicroBatch& batch) = 0;

  // Mean losses of this rank's micro-batches in the step or evaluation that was collected last,
  // even if it failed.
  [[nodiscard]] virtual std::span<const double> micro_batch_losses() const = 0;

  [[nodiscard]] virtual ParamStore& params() = 0;
  [[nodiscard]] virtual Device& device() = 0;
  [[nodiscard]] virtual Optimizer& optimizer() = 0;
  [[nodiscard]] virtual Model& model() = 0;
  [[nodiscard]] virtual const TrainConfig& config() const = 0;
};

}  // namespace ckpt::trainer

#endif  // CKPT_TRAINER_STEP_RANK_TRAINER_H_
