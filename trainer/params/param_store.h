// ParamStore: the sharded parameters of one rank. It gathers weights, reduces gradients, and owns
// the arrays that the optimizer updates.
#ifndef CKPT_TRAINER_PARAMS_PARAM_STORE_H_
#define CKPT_TRAINER_PARAMS_PARAM_STORE_H_

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "core/base/result.h"
#include "trainer/device/collectives.h"
#include "trainer/device/device.h"
#include "trainer/ops/ops.h"
#include "trainer/ops/phase_clock.h"
#include "trainer/params/mesh_comms.h"
#include "trainer/params/param_access.h"
#include "trainer/params/param_piece.h"
#include "trainer/params/piece_rows.h"
#include "trainer/params/shard_plan.h"

namespace ckpt::trainer {

struct ParamStoreOptions {
  // Fill slots with NaN when they are released, so that work that reads them without Acquire or
  // without waiting is noticed.
  bool poison_released = false;
  // Gather a unit's weights before they are requested, in parallel with the computation.
  bool prefetches = true;
  // Run reductions in parallel with the computation. Otherwise the compute queue waits for each.
  bool overlaps_reduces = true;
  // Of the compute queue: told when it waits for weights or for sums of gradients. Null: nobody is.
  PhaseClock* clock = nullptr;
};

// How often the store communicated. Tests compare it with what a schedule promises.
struct ParamStoreCounters {
  std::int64_t gathers = 0;  // of one unit's weights over a shard group
  std::int64_t reduces = 0;  // of one unit's gradients of one micro-batch over a shard group
  // Of sums, after the last micro-batch, over a shard group or replicas.
  std::int64_t late_reduces = 0;
  std::int64_t refreshes = 0;   // of compute weights after an update
  int most_gathered_units = 0;  // most whole units at once, without the ends
};

// A group as the optimizer sees it: this rank's part, in arrays of equal length. Padding between
// parameters is zero.
struct MainArrays {
  std::size_t group = 0;  // index into the plan
  Tensor weights;         // main weights
  GradientSum gradient;   // over the step, not yet averaged; valid until the next step begins
  WeightCopies compute;   // compute weights to write too; null: the main weights are also those
  bool counts = true;     // whether this rank counts these elements in a norm; one rank does
  // Runs of the pieces' rows, if this rank counts them, and where their squares go: none before
  // LeaveSquares.
  std::vector<ShardRows> rows;
  bool has_squares = false;  // whether reductions leave the squares of `rows`
  std::vector<ParamPiece> pieces;
};

// A step:
//
//   BeginStep(M); per micro-batch: BeginMicroBatch(), then the model through ParamAccess;
//   FinishEarlyGradients(), for who reads gradients before the last are there; FinishGradients();
//   read `mains()`; per unit: update them, WeightsChanged(unit).
//
// Weights are gathered on two queues, from the shard group and from the replicas. Gradients are
// reduced on a third. All three run in parallel with the compute queue.
//
// Thread-safety: the rank's thread.
class ParamStore final : public ParamAccess {
 public:
  // `units`, `comms` with its collectives, `ops`, `device` and `compute` outlive the store.
  // Errors: kSystem (out of memory).
  static Result<std::unique_ptr<ParamStore>> Create(const std::vector<UnitSpec>& units,
                                                    ShardPlan plan, MeshComms& comms, Ops& ops,
                                                    Device& device, Queue& compute,
                                                    const ParamStoreOptions& options);
  ~ParamStore() override;

  // Sets every weight that this rank owns: `fill(spec, row_begin, rows, values)` writes rows of one
  // parameter in float32. Then updates the compute weights on all ranks. Every rank calls it.
  // `threads`: how many call `fill` at once. Errors: those of `fill` and of the queues.
  using FillRows = ckpt::trainer::FillRows;
  Status SetWeights(const FillRows& fill, int threads = 1);
  // Enqueues copies to the host of the weights that this rank owns. `place` is called before the
  // call returns; the places are valid until `queue` has run the copies.
  //
  // REQUIRES: `queue` waits for the work that writes the weights. Errors: kSystem.
  using PlaceRows = ckpt::trainer::PlaceRows;
  Status ReadWeights(const PlaceRows& place, Queue& queue);
  // For copies of other arrays with the same pieces.
  [[nodiscard]] PieceRows& piece_rows();

  // From now on, `rows` of mains() say where squares go, and the reduction that ends a step leaves
  // them there where it can. `squares`, float64: one for each row that this rank counts, in order of mains()
  // and their pieces. It outlives the steps.
  void LeaveSquares(const Tensor& squares);

  void BeginStep(int num_micro_batches);
  void BeginMicroBatch();
  // Makes the compute queue wait for the reductions of all units but one, the last, which is
  // returned: then the gradients in `mains()` of the others are complete.
  // -1: there is no such unit.
  int FinishEarlyGradients();
  // Makes the compute queue wait for every reduction: then all of `mains()` is complete.
  void FinishGradients();
  // The caller has changed the main weights of `unit` and the compute weights of the same range.
  // Updates its other compute weights from them. Call it for every unit, in order.
  void WeightsChanged(int unit);

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
