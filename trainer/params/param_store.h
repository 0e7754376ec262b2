// ParamStore: the sharded parameters of one rank: gathers weights, reduces gradients, owns what the
// optimizer updates.
#ifndef CKPT_TRAINER_PARAMS_PARAM_STORE_H_
#define CKPT_TRAINER_PARAMS_PARAM_STORE_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "core/base/bytes.h"
#include "core/base/result.h"
#include "trainer/device/device.h"
#include "trainer/ops/ops.h"
#include "trainer/params/mesh_comms.h"
#include "trainer/params/param_access.h"
#include "trainer/params/param_piece.h"
#include "trainer/params/shard_plan.h"

namespace ckpt::trainer {

struct ParamStoreOptions {
  // Fill slots with NaN when they are released, so that work which reads them without having
  // acquired or waited shows.
  bool poison_released = false;
  // Gather a unit's weights before they are asked for, beside the computation.
  bool prefetches = true;
  // Let reductions run beside the computation; else the compute queue waits for each.
  bool overlaps_reduces = true;
};

// How often the store communicated; a schedule's promise is a count.
struct ParamStoreCounters {
  std::int64_t gathers = 0;  // of one unit's weights over a shard group
  std::int64_t reduces = 0;  // of one unit's gradients of one micro-batch over a shard group
  std::int64_t late_reduces =
      0;  // of sums, behind the last micro-batch, over a shard group or replicas
  std::int64_t refreshes = 0;   // of compute weights after an update
  int most_gathered_units = 0;  // whole units at once, the root aside
};

// What the optimizer sees of a group: arrays of equal length, this rank's part. Padding between
// parameters is zero.
struct MainArrays {
  std::size_t group = 0;  // index into the plan
  Tensor weights;         // main weights
  Tensor gradient;        // sums over the step, of their own dtype, not averaged yet
  Tensor compute;         // compute weights to write too; null: they are the main weights
  bool counts = true;     // exactly one rank counts these elements in a norm
  std::vector<ParamPiece> pieces;
};

// A step:
//
//   BeginStep(M); per micro-batch: BeginMicroBatch(), then the model through ParamAccess;
//   FinishGradients();
//   read `mains()`, update them; WeightsChanged().
//
// Weights are gathered on two queues, from the shard group and from the replicas; gradients are
// reduced on a third, beside the compute queue.
//
// Thread-safety: the rank's thread.
class ParamStore final : public ParamAccess {
 public:
  // `units`, `topology`, `comms` and everything in it outlive the store.
  // Errors: kSystem (out of memory).
  static Result<std::unique_ptr<ParamStore>> Create(const std::vector<UnitSpec>& units,
                                                    ShardPlan plan, MeshComms& comms, Ops& ops,
                                                    Device& device, Queue& compute,
                                                    const ParamStoreOptions& options);
  ~ParamStore() override;

  // Sets every weight this rank owns: `fill(spec, row_begin, rows, values)` writes rows of one
  // parameter, in float32; afterwards the compute weights follow on all ranks. Every rank calls it.
  // Errors: those of `fill` and of the queues.
  using FillRows = std::function<Status(const ParamSpec& spec, std::int64_t row_begin,
                                        std::int64_t rows, std::span<float> values)>;
  Status SetWeights(const FillRows& fill);
  // Copies weights this rank owns to the host, in float32: the rows of a piece, in C order, to
  // where `place(piece)` says, which must be there until the call returns. A piece without a place
  // (an empty span) is not wanted, and stays on the device. Blocks.
  //
  // REQUIRES: a place is as large as its piece. Errors: those of the queue, kSystem.
  using PlaceRows = std::function<MutableByteSpan(const ParamPiece& piece)>;
  Status ReadWeights(const PlaceRows& place);

  void BeginStep(int num_micro_batches);
  void BeginMicroBatch();
  // Waits (on the compute queue) for every reduction: the sums of `mains()` are complete.
  void FinishGradients();
  // The main weights have new values, and so have the compute weights of the same range: brings the
  // others up to date.
  void WeightsChanged();

  [[nodiscard]] std::span<const MainArrays> mains() const;
  [[nodiscard]] const ShardPlan& plan() const;
  [[nodiscard]] const ParamStoreCounters& counters() const;
  // Waits for all queues. Errors: their first failure.
  Status Synchronize();

  void Prefetch(int unit) override;
  std::span<const Tensor> Acquire(int unit) override;
  void Release(int unit) override;
  std::span<const Gradient> AcquireGradients(int unit) override;
  void ReduceGradients(int unit) override;

 private:
  class Impl;
  explicit ParamStore(std::unique_ptr<Impl> impl);

  std::unique_ptr<Impl> impl_;
};

}  // namespace ckpt::trainer

#endif  // CKPT_TRAINER_PARAMS_PARAM_STORE_H_
