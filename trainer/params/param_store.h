// ParamStore: the sharded parameters of one rank. It gathers weights, reduces gradients, and owns
// the arrays that the optimizer updates.
#ifndef CKPT_TRAINER_PARAMS_PARAM_STORE_H_
#define CKPT_TRAINER_PARAMS_PARAM_STORE_H_

#include <algorithm>
#include <cstddef>
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
#include "trainer/params/slot_pool.h"

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
// Its sources: the memory (param_store.cc), whole weights in slots (internal/gathered_weights.cc),
// and gradients that become sums (internal/reduced_gradients.cc).
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
  ParamStore(const ParamStore&) = delete;
  ParamStore& operator=(const ParamStore&) = delete;

  // Sets every weight that this rank owns: `fill(spec, row_begin, rows, values)` writes rows of one
  // parameter in float32. Then updates the compute weights on all ranks. Every rank calls it.
  // `threads`: how many call `fill` at once. Errors: those of `fill` and of the queues.
  Status SetWeights(const FillRows& fill, int threads = 1);
  // Enqueues copies to the host of the weights that this rank owns. `place` is called before the
  // call returns; the places are valid until `queue` has run the copies.
  //
  // REQUIRES: `queue` waits for the work that writes the weights. Errors: kSystem.
  Status ReadWeights(const PlaceRows& place, Queue& queue);
  // For copies of other arrays with the same pieces.
  [[nodiscard]] PieceRows& piece_rows() { return piece_rows_; }

  // From now on, `rows` of mains() say where squares go, and the reduction that ends a step leaves
  // them there where it can. `squares`, float64: one for each row that this rank counts, in order
  // of mains() and their pieces. It outlives the steps.
  void LeaveSquares(const Tensor& squares);

  void BeginStep(int num_micro_batches);
  void BeginMicroBatch() { ++micro_batch_; }
  // Makes the compute queue wait for the reductions of all units but one, the last, which is
  // returned: then the gradients in `mains()` of the others are complete.
  // -1: there is no such unit.
  int FinishEarlyGradients();
  // Makes the compute queue wait for every reduction: then all of `mains()` is complete.
  void FinishGradients();
  // The caller has changed the main weights of `unit` and the compute weights of the same range.
  // Updates its other compute weights from them. Call it for every unit, in order.
  void WeightsChanged(int unit) { Refresh(unit, WrittenBy::kUpdate); }

  [[nodiscard]] std::span<const MainArrays> mains() const { return mains_; }
  [[nodiscard]] const ShardPlan& plan() const { return plan_; }
  [[nodiscard]] const ParamStoreCounters& counters() const { return counters_; }
  // Waits for all queues. Errors: their first failure.
  Status Synchronize();

  void Prefetch(int unit) override;
  std::span<const Tensor> Acquire(int unit) override;
  void Release(int unit) override;
  std::span<const Gradient> AcquireGradients(int unit) override;
  void ReduceGradients(int unit) override;

 private:
  // What changed this rank's part of the weights: an update may write the other rank's, too.
  enum class WrittenBy : std::uint8_t { kUpdate, kOther };
  // The persistent arrays of one group. Each holds the range that the plan names.
  struct GroupArrays {
    std::vector<Buffer> memory;
    Tensor weights;
    Tensor main;
    Tensor gradients;             // sums; or of a group that has a landing, see WholeGradients
    std::vector<FlatGap> gaps;    // in the whole array
    bool sums_are_stale = false;  // from the last step: the next micro-batch overwrites them
  };
  // The one half that is free, of those in which terms land.
  struct VacantHalf {
    Tensor memory;
    std::uint64_t reads = 0;  // the calls of the reduction after which no rank reads it
  };
  struct UnitState {
    int users = 0;
    std::vector<Tensor> weights;
    std::vector<Gradient> gradients;
    Event sliced;     // this rank's part is up to date: the replicas' slices have arrived
    Event refreshed;  // compute weights that are held whole are up to date too
  };

  ParamStore(const std::vector<UnitSpec>& units, ShardPlan plan, MeshComms& comms, Ops& ops,
             Device& device, Queue& compute, const ParamStoreOptions& options);

  Status Allocate();
  Result<Tensor> AllocateArray(GroupArrays& arrays, std::int64_t elems, DType dtype, MemoryUse use);
  Status AllocateGroup(const GroupPlan& group);
  Status AllocateSlots();
  Status AllocateLandings();
  // Lets the update of a group's weights write those of the other rank too, where it can.
  Status FindOtherWeights(std::size_t group_index);
  void CheckStacks(const GroupPlan& group) const;
  // Tells the collectives of each array which memory they will use.
  void RegisterMemory();
  void ListMain(std::size_t index);
  // The part of a group's sums that belongs to its `main`.
  [[nodiscard]] Tensor MainSums(std::size_t index) const;

  [[nodiscard]] const ParamSpec& Spec(const GroupPlan& group, std::size_t index) const {
    return units_[static_cast<std::size_t>(group.unit)].params[group.params[index]];
  }
  [[nodiscard]] std::span<const std::size_t> Groups(int unit) const {
    return plan_.units[static_cast<std::size_t>(unit)];
  }
  [[nodiscard]] UnitState& State(int unit) { return states_[static_cast<std::size_t>(unit)]; }
  [[nodiscard]] bool IsLastMicroBatch() const { return micro_batch_ == num_micro_batches_; }

  template <typename Predicate>
  [[nodiscard]] bool AnyGroup(int unit, Predicate predicate) const {
    return std::ranges::any_of(Groups(unit),
                               [&](std::size_t g) { return predicate(plan_.groups[g]); });
  }
  // Whether the computation may have to wait for other ranks before it uses `unit`'s weights, or
  // for the reductions of its gradients.
  [[nodiscard]] bool MayAwaitWeights(int unit) const {
    return AnyGroup(unit, [](const GroupPlan& group) {
      return group.gathers() || group.main.elems < group.part.elems ||
             group.part.elems < group.weights.elems;
    });
  }
  [[nodiscard]] bool Reduces(int unit) const {
    return AnyGroup(unit, [](const GroupPlan& group) {
      return group.trainable && (group.uses_bucket() || group.inner > 1 || group.outer > 1);
    });
  }
  // The clock, where queues run work while it is enqueued: it holds up the computation then.
  [[nodiscard]] PhaseClock* eager_clock() const {
    return device_.is_asynchronous() ? nullptr : options_.clock;
  }
  // Calls `use(group, array)` for each group of `unit` that is in a slot, with its whole array
  // there.
  template <typename Predicate, typename Use>
  void ForEachInSlot(int unit, const Buffer& memory, DType dtype, Predicate lies_there,
                     const Use& use);

  // Updates this rank's parts from the replicas where it updates only slices of them.
  void RefreshSlices(int unit, const Event& updated);
  // Updates weights that are held whole from the shard group.
  void RefreshWhole(int unit, WrittenBy writer);
  // After this rank's part of `unit`'s weights has changed: updates all that is held of them.
  void Refresh(int unit, WrittenBy writer);
  SlotPool::Slot* Gather(int unit);
  // Calls `use(parameter's index in its unit, its tensor in the group's whole array)`.
  template <typename Use>
  void ForEachParam(const GroupPlan& group, const Tensor& flat, const Use& use) const;
  void SetWeightViews(const GroupPlan& group, const Tensor& flat);
  // Sets where a micro-batch writes a group's gradients. If it stores them, the gaps are zeroed.
  void SetGradientViews(std::size_t group_index, const Tensor& flat, GradWrite write);
  // Work enqueued from now on comes after the other ranks' reads of this rank's weights, or of its
  // gradients.
  void AwaitWeightReaders();
  void AwaitGradientReaders(Queue& queue);
  void Poison(Queue& queue, const Tensor& memory);
  void Poison(Queue& queue, const SlotPool::Slot& slot, DType dtype);
  // Poisons every slot. Call it before any is used.
  void PoisonAll();
  // The gradients of a group that has a landing, of all ranks' parts, before they are exchanged.
  [[nodiscard]] Tensor WholeGradients(std::size_t group_index) const;
  // Enqueues the exchange of the halves of WholeGradients with the other rank.
  void ExchangeHalves(std::size_t group_index);
  // Enqueues the reduction of a micro-batch's gradients, `whole` in a slot, on the reduce queue.
  void ReduceBucket(std::size_t group_index, const Tensor& whole);
  // The rows whose squares a reduction leaves: none but for the last of a step.
  [[nodiscard]] std::span<const ShardRows> RowsToSquare(std::size_t group_index,
                                                        bool is_last) const {
    const MainArrays& main = mains_[group_index];
    return is_last && main.has_squares ? std::span(main.rows) : std::span<const ShardRows>();
  }
  // Enqueues the reductions of a group's sums after the last micro-batch, on the reduce queue.
  void ReduceLate(std::size_t group_index);
  // Sums `region` over `comm`. Afterwards `own`, a part of it or all of it, is valid. Of a part,
  // the squares of `rows` are left.
  void ReduceSums(Collectives& comm, const Tensor& region, const Tensor& own,
                  std::span<const ShardRows> rows);

  [[nodiscard]] Collectives& GatherComm(const GroupPlan& group) {
    return group.param_class == ParamClass::kExpert ? *comms_.gather_expert_shard
                                                    : *comms_.gather_shard;
  }
  [[nodiscard]] Collectives& ReduceComm(const GroupPlan& group) {
    return group.param_class == ParamClass::kExpert ? *comms_.reduce_expert_shard
                                                    : *comms_.reduce_shard;
  }

  const std::vector<UnitSpec>& units_;
  const ShardPlan plan_;
  MeshComms& comms_;
  Ops& ops_;
  Device& device_;
  Queue& compute_;
  const ParamStoreOptions options_;
  PieceRows piece_rows_;

  std::vector<GroupArrays> arrays_;  // parallel to plan_.groups
  std::vector<MainArrays> mains_;
  std::vector<UnitState> states_;
  SlotPool weight_slots_;
  SlotPool gradient_slots_;
  Buffer wire_memory_;
  std::vector<Buffer> landings_;    // parallel to plan_.landings
  std::vector<VacantHalf> vacant_;  // likewise; in a step, landings_ or a half that was sent away
  int num_micro_batches_ = 0;
  int micro_batch_ = 0;         // counted from 1
  int last_reduced_ = -1;       // the last unit of this step, if it is reduced over ranks
  Event all_but_last_reduced_;  // the reductions of the others are over
  ParamStoreCounters counters_;
  // Last, so that the queues end their work before the memory is freed.
  std::unique_ptr<Queue> gather_;
  std::unique_ptr<Queue> gather_outer_;
  std::unique_ptr<Queue> reduce_;
};

}  // namespace ckpt::trainer

#endif  // CKPT_TRAINER_PARAMS_PARAM_STORE_H_
