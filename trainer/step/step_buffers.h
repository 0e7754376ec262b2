// StepBuffers: what goes from the host to the device before a step, and back behind it.
#ifndef CKPT_TRAINER_STEP_STEP_BUFFERS_H_
#define CKPT_TRAINER_STEP_STEP_BUFFERS_H_

#include <array>
#include <cstdint>
#include <span>
#include <vector>

#include "core/base/result.h"
#include "core/tensor/dtype.h"
#include "trainer/device/device.h"
#include "trainer/model/model.h"
#include "trainer/ops/step_scalars.h"
#include "trainer/params/shard_plan.h"
#include "trainer/step/train_config.h"

namespace ckpt::trainer {

// Sequences of equal length, one after another. Labels are shifted already; negative ones are not
// counted.
struct HostMicroBatch {
  std::vector<std::int32_t> tokens;
  std::vector<std::int32_t> labels;
  std::int64_t batch = 0;
  std::int64_t seq = 0;

  // If examples share sequences, the arrays of TokenLayout: at most as many examples as tokens, and
  // no label on padding. Otherwise empty: every sequence is one example, its positions count from
  // 0, and no token is padding.
  std::vector<std::int32_t> positions = {};
  std::vector<std::int32_t> cu_seqlens = {};
  std::vector<std::int32_t> lengths = {};

  [[nodiscard]] std::int64_t num_tokens() const { return batch * seq; }
  [[nodiscard]] std::int64_t CountLabels() const;
};

// The largest step that buffers hold.
struct StepShape {
  std::int64_t micro_batches = 0;
  std::int64_t tokens = 0;  // of a micro-batch
  std::int64_t ranks = 1;
  std::int64_t expert_counts = 0;      // elements of Model::expert_counts
  DType statistics = DType::kFloat32;  // of losses
};
[[nodiscard]] StepShape ShapeOf(const TrainConfig& config);
// Device memory of a rank's trainer in addition to parameters and activations: of its StepBuffers
// and its GradNorm. `units` and `plan` are the rank's.
[[nodiscard]] std::uint64_t StepBytes(const TrainConfig& config, std::span<const UnitSpec> units,
                                      const ShardPlan& plan);

// What a rank tells the others late in a step.
struct LateScalars {
  bool votes_to_stop = false;
  int rank = 0;  // this one
  std::uint64_t peak_bytes = 0;
  // PhaseTimes::ns of an earlier step: that of this one is not over. Zeros: no step is over.
  std::array<std::int64_t, kNumStepPhases> phase_ns{};
};

// The device holds the numbers of one step, because steps run one after another there. The host has
// a pinned copy for every step in flight: it writes the next one while the device reads another.
//
// Everything is enqueued on the compute queue. Thread-safety: the rank's thread.
class StepBuffers {
 public:
  // Steps that may be in flight.
  static constexpr int kSlots = 2;

  // What the host knows when the step is over.
  struct Results {
    StepOutcome outcome;
    PhaseTimes phases;
    std::span<const std::int64_t> rank_phases;    // LateScalars::phase_ns of rank after rank;
                                                  // valid until the slot is used again
    std::vector<double> means;                    // loss of each micro-batch of this rank
    std::span<const std::int64_t> expert_counts;  // valid until the slot is used again
  };

  // `device` and `queue` outlive it; synchronise the queue before destroying it. Errors: kSystem.
  static Result<StepBuffers> Create(const StepShape& shape, Device& device, Queue& queue);

  // Whether these micro-batches fit.
  [[nodiscard]] bool Holds(std::span<const HostMicroBatch> batches) const;
  // Makes room for them, too. The scalars stay where they are. REQUIRES: the queue has run
  // everything. Errors: kSystem.
  Status Widen(std::span<const HostMicroBatch> batches);

  // Begins a step in this slot: copies its micro-batches and scalars to the device. REQUIRES:
  // Holds(batches); the slot's last step is over.
  void Upload(int slot, std::span<const HostMicroBatch> batches, const UpdateScalars& update);
  // Copies what is known only after the backward pass has been enqueued.
  void UploadLate(int slot, const LateScalars& late);
  // Copies the outcome, the times, the means and the expert counts to the host.
  // `counts` may be null.
  void Download(int slot, const Tensor& counts);
  // REQUIRES: the queue has run what Download enqueued.
  [[nodiscard]] Results Read(int slot) const;

  // Views of the device's memory. MicroBatch m of the step that was uploaded last.
  [[nodiscard]] const MicroBatch& micro_batch(std::size_t m) const { return micro_batches_[m]; }
  [[nodiscard]] Tensor losses(std::int64_t tokens) const { return losses_.Rows(0, tokens); }
  [[nodiscard]] const Tensor& aux_loss() const { return aux_loss_; }
  [[nodiscard]] Tensor mean(std::size_t m) const {
    return means_.Rows(static_cast<std::int64_t>(m), 1);
  }
  [[nodiscard]] const Tensor& update() const { return update_; }
  [[nodiscard]] const Tensor& sums() const { return sums_; }
  // The sums, and behind them what ranks tell each other besides:
  // what a step adds up over the ranks.
  [[nodiscard]] Tensor shared_sums() const;
  [[nodiscard]] const Tensor& outcome() const { return outcome_; }
  [[nodiscard]] const Tensor& phase_times() const { return phase_times_; }
  [[nodiscard]] const Tensor& has_failed() const { return has_failed_; }
  // Parts of the sums: int64 [1]. Their memory is the same for all steps.
  [[nodiscard]] Tensor dropped() const;
  [[nodiscard]] Tensor overflows() const;

 private:
  struct Slot {
    PinnedBuffer scalars_up;
    PinnedBuffer late_up;
    PinnedBuffer inputs_up;
    PinnedBuffer outcome_down;
    PinnedBuffer means_down;
    PinnedBuffer counts_down;
    std::size_t num_micro_batches = 0;
    std::int64_t num_counts = 0;
  };

  StepBuffers(const StepShape& shape, Device& device, Queue& queue)
      : shape_(shape), device_(&device), queue_(&queue) {}
  Status AllocateScalars();
  // Allocates what depends on the micro-batches.
  Status AllocateArrays();

  StepShape shape_;
  Device* device_;
  Queue* queue_;
  std::array<Slot, kSlots> slots_;
  Buffer scalars_memory_;
  Tensor update_;
  Tensor sums_;         // behind the update, with the peaks of the ranks at its end
  Tensor rank_phases_;  // behind the sums
  Tensor outcome_;      // behind the phases
  Tensor phase_times_;  // behind the outcome
  Tensor has_failed_;
  Tensor aux_loss_;
  Buffer arrays_memory_;
  Tensor inputs_;  // int32: the arrays of all micro-batches
  Tensor means_;
  Tensor losses_;
  std::vector<MicroBatch> micro_batches_;
};

}  // namespace ckpt::trainer

#endif  // CKPT_TRAINER_STEP_STEP_BUFFERS_H_
