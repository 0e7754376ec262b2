// RankTrainer: one rank of a training run: model, sharded parameters, optimizer, and the step that joins them.
#ifndef CKPT_TRAINER_STEP_RANK_TRAINER_H_
#define CKPT_TRAINER_STEP_RANK_TRAINER_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "core/base/result.h"
#include "trainer/comm/communicator.h"
#include "trainer/device/device.h"
#include "trainer/model/model.h"
#include "trainer/ops/ops.h"
#include "trainer/optim/optimizer.h"
#include "trainer/params/param_store.h"
#include "trainer/step/train_config.h"

namespace ckpt::trainer {

// What a rank computes with. All outlive the trainer.
struct Backend {
  Device* device = nullptr;
  Ops* ops = nullptr;
};

// Sequences of equal length, one behind another. Labels are shifted already; negative ones do not count.
struct HostMicroBatch {
  std::vector<std::int32_t> tokens;
  std::vector<std::int32_t> labels;
  std::int64_t batch = 0;
  std::int64_t seq = 0;

  // Where examples share sequences, the arrays of TokenLayout: no more examples than tokens, and no
  // label where padding is. Empty: every sequence is one example, its positions count from 0, and no
  // token is padding.
  std::vector<std::int32_t> positions = {};
  std::vector<std::int32_t> cu_seqlens = {};
  std::vector<std::int32_t> lengths = {};
};

// The same on every rank.
struct StepReport {
  std::int64_t step = 0;  // counted from 1
  double loss = 0;        // of the whole batch, without auxiliary losses
  double aux_loss = 0;    // mean over the micro-batches
  double grad_norm = 0;   // before clipping
  double lr = 0;
  std::int64_t tokens = 0;  // counted ones, of all ranks
  // Most device memory that a rank has held so far.
  std::uint64_t peak_bytes = 0;
  // Of models with experts: how many rows the most and the least used expert of any layer had, over
  // what all of the layer had on average; and choices dropped for want of room, in all layers.
  struct ExpertLoad {
    double most = 1;
    double least = 1;
    std::int64_t dropped = 0;
  };
  std::optional<ExpertLoad> experts = {};
};

struct Evaluation {
  double loss = 0;  // as a step on the same micro-batches would report it
  std::int64_t tokens = 0;
};

// Thread-safety: the rank's thread. Every rank makes the same calls.
class RankTrainer {
 public:
  // REQUIRES: the configuration is valid, `world` has its world_size ranks. Errors: kSystem, kCancelled, those of
  // CheckUnshardedBytes.
  static Result<std::unique_ptr<RankTrainer>> Create(const TrainConfig& config, Communicator& world,
                                                     const Backend& backend);
  virtual ~RankTrainer() = default;

  // Weights drawn from (seed, name, row): the same on every mesh.
  virtual Status InitializeWeights() = 0;
  // Sets every parameter, and every replicated buffer as if it were one. Errors: as ParamStore::SetWeights.
  virtual Status SetWeights(const ParamStore::FillRows& fill) = 0;
  // Sets what the optimizer keeps of every weight it updates: of AdamW, moment 0 is exp_avg and 1 exp_avg_sq; of SGD, 0 is
  // the momentum. How often it did is `optimizer().set_steps`, which decides the learning rate too. Errors: as SetWeights.
  virtual Status SetMoment(int moment, const ParamStore::FillRows& fill) = 0;
  // The same rows, those that are wanted, copied to the host: every rank has its own, and every
  // replicated buffer. As ParamStore::ReadWeights.
  virtual Status ReadWeights(const ParamStore::PlaceRows& place) = 0;
  virtual Status ReadMoment(int moment, const ParamStore::PlaceRows& place) = 0;

  // One update from this rank's micro-batches, `config.num_micro_batches()` of them.
  //
  // Errors: kValueMismatch (a loss or gradient that is not finite: names micro-batch or parameter; nothing is updated),
  //         kCancelled (a rank is gone).
  virtual Result<StepReport> Step(std::span<const HostMicroBatch> batches) = 0;
  // The gradients of a step, left where ReadGradient finds them, nothing updated. Report without lr.
  virtual Result<StepReport> ComputeGradients(std::span<const HostMicroBatch> batches) = 0;
  // The gradient of all of `main`, one of `params().mains()`, as the last step's update took it:
  // averaged, and clipped unless the step only computed gradients. Blocks.
  //
  // REQUIRES: the group is trained. Errors: kSystem, those of the queue.
  virtual Result<std::vector<float>> ReadGradient(const MainArrays& main) = 0;
  // Changes nothing that a step reads. Errors: as Step, of the loss.
  virtual Result<Evaluation> Evaluate(std::span<const HostMicroBatch> batches) = 0;
  // Logits [batch · seq, padded vocabulary] of one batch, float32, C order. Every rank computes its own.
  virtual Result<std::vector<float>> Logits(const HostMicroBatch& batch) = 0;

  // Mean losses of this rank's micro-batches in the last step or evaluation, one that failed too.
  [[nodiscard]] virtual std::span<const double> micro_batch_losses() const = 0;

  [[nodiscard]] virtual ParamStore& params() = 0;
  [[nodiscard]] virtual Optimizer& optimizer() = 0;
  [[nodiscard]] virtual Model& model() = 0;
  [[nodiscard]] virtual const TrainConfig& config() const = 0;
};

}  // namespace ckpt::trainer

#endif  // CKPT_TRAINER_STEP_RANK_TRAINER_H_
