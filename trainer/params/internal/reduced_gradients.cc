// The gradients of a unit, from the micro-batches to the sum of all ranks.
#include <array>
#include <utility>

#include "trainer/params/internal/group_views.h"

namespace ckpt::trainer {

namespace {

// The backward pass reduces units from the last to the first. All others are squared while the
// first is reduced, which hides that pass; so there is nothing to gain for them. Another order
// would cost time and nothing else.
constexpr int kReducedLast = 0;

}  // namespace

void ParamStore::LeaveSquares(const Tensor& squares) {
  const DType sums = plan_.precision.main_grads;
  const bool are_floats = sums == DType::kFloat32 || sums == DType::kBfloat16;
  std::int64_t first = 0;
  for (MainArrays& main : mains_) {
    const GroupPlan& group = plan_.groups[main.group];
    if (!group.trainable || !main.counts) continue;
    Collectives& last = group.outer > 1 ? *comms_.reduce_outer : ReduceComm(group);
    main.has_squares = group.unit == kReducedLast && are_floats && group.EndsWithReduceScatter() &&
                       last.LeavesSquares();
    main.rows.clear();
    for (const ParamPiece& piece : main.pieces) {
      const Tensor of_piece = squares.Rows(first, piece.rows);
      first += piece.rows;
      if (!main.rows.empty() && main.rows.back().columns == piece.row_elems &&
          main.rows.back().end() == piece.main_offset) {
        main.rows.back().squares.dims[0] += piece.rows;
        continue;
      }
      main.rows.push_back(
          {.begin = piece.main_offset, .columns = piece.row_elems, .squares = of_piece});
    }
  }
  CKPT_CHECK(first == squares.num_elems());
}

void ParamStore::BeginStep(int num_micro_batches) {
  CKPT_CHECK(plan_.landings.empty() || num_micro_batches == 1);
  AwaitGradientReaders(compute_);
  num_micro_batches_ = num_micro_batches;
  micro_batch_ = 0;
  last_reduced_ = -1;
  for (std::size_t g = 0; g < plan_.groups.size(); ++g) {
    const GroupPlan& group = plan_.groups[g];
    if (!group.trainable) continue;
    arrays_[g].sums_are_stale = true;
    if (!options_.poison_released) continue;
    Poison(compute_, group.landing ? WholeGradients(g) : arrays_[g].gradients);
  }
  // In this step, what lies elsewhere is written by the backward pass again.
  for (std::size_t i = 0; i < vacant_.size(); ++i) {
    vacant_[i] = {.memory = Tensor(landings_[i].data(), plan_.precision.grad_comm,
                                   {plan_.landings[i].elems})};
    if (options_.poison_released) Poison(compute_, vacant_[i].memory);
  }
}

void ParamStore::SetGradientViews(std::size_t group_index, const Tensor& flat, GradWrite write) {
  const GroupPlan& group = plan_.groups[group_index];
  UnitState& state = State(group.unit);
  ForEachParam(group, flat, [&](std::size_t param, const Tensor& view) {
    state.gradients[param] = {.tensor = view, .write = write};
  });
  if (write == GradWrite::kAdd) return;
  for (const FlatGap& gap : arrays_[group_index].gaps) {
    ops_.Fill(compute_, flat.Rows(gap.begin, gap.elems), 0);
  }
}

std::span<const Gradient> ParamStore::AcquireGradients(int unit) {
  const auto in_slot = [](const GroupPlan& group) { return group.uses_gradient_slot(); };
  if (AnyGroup(unit, in_slot)) {
    SlotPool::Slot* slot = gradient_slots_.Take(unit);
    CKPT_CHECK(slot != nullptr);
    {
      const PhaseScope waits(options_.clock, StepPhase::kReduceWait);
      compute_.Wait(slot->free);
      comms_.reduce_shard->AwaitReaders(compute_, slot->reads);
      comms_.reduce_expert_shard->AwaitReaders(compute_, slot->expert_reads);
    }
    ForEachInSlot(
        unit, slot->memory, plan_.precision.grad_comm, in_slot,
        [&](std::size_t g, const Tensor& whole) { SetGradientViews(g, whole, GradWrite::kStore); });
  }
  for (const std::size_t g : Groups(unit)) {
    const GroupPlan& group = plan_.groups[g];
    if (!group.trainable || group.uses_gradient_slot()) continue;
    if (group.landing) {
      SetGradientViews(g, WholeGradients(g), GradWrite::kStore);
      continue;
    }
    GroupArrays& arrays = arrays_[g];
    SetGradientViews(g, arrays.gradients,
                     arrays.sums_are_stale ? GradWrite::kStore : GradWrite::kAdd);
    arrays.sums_are_stale = false;
  }
  return State(unit).gradients;
}

void ParamStore::ReduceSums(Collectives& comm, const Tensor& region, const Tensor& own,
                            std::span<const ShardRows> rows) {
  ++counters_.late_reduces;
  const bool converts = plan_.precision.grad_comm != plan_.precision.main_grads;
  const Tensor sent =
      converts ? Tensor(wire_memory_.data(), plan_.precision.grad_comm, {region.num_elems()})
               : region;
  if (converts) {
    AwaitGradientReaders(*reduce_);  // of what was sent from there before
    ops_.Cast(*reduce_, region, sent);
  }
  if (own.num_elems() < region.num_elems()) {
    comm.ReduceScatterInto(*reduce_, sent, own, GradWrite::kStore, rows);
    return;
  }
  // Every rank gets the whole sum as it was sent, so a narrow wire rounds it.
  comm.AllReduce(*reduce_, sent, ReduceOp::kSum);
  if (converts) ops_.Cast(*reduce_, sent, own);
}

void ParamStore::ReduceLate(std::size_t group_index) {
  const GroupPlan& group = plan_.groups[group_index];
  const GroupArrays& arrays = arrays_[group_index];
  const auto in_sums = [&](const FlatRange& range) {
    return PartOf(arrays.gradients, group.gradients, range);
  };
  const Tensor part = in_sums(group.part);
  if (!group.uses_bucket() && group.inner > 1) {
    ReduceSums(ReduceComm(group), arrays.gradients, part,
               RowsToSquare(group_index, group.outer == 1));
  }
  if (group.outer > 1) {
    ReduceSums(*comms_.reduce_outer, part, in_sums(group.main), RowsToSquare(group_index, true));
  }
}

Tensor ParamStore::WholeGradients(std::size_t group_index) const {
  const std::int64_t elems = plan_.groups[group_index].layout.total_elems;
  return {arrays_[group_index].gradients.data, plan_.precision.grad_comm, {elems}};
}

void ParamStore::ExchangeHalves(std::size_t group_index) {
  const GroupPlan& group = plan_.groups[group_index];
  Collectives& comm = ReduceComm(group);
  VacantHalf& vacant = vacant_[*group.landing];
  const Tensor whole = WholeGradients(group_index);
  const auto own = static_cast<std::size_t>(comm.rank());
  const std::int64_t elems = group.part.elems;
  std::array<Tensor, 2> terms = {vacant.memory, vacant.memory};
  terms[own] = whole.Rows(group.part.begin, elems);
  comm.AwaitReaders(*reduce_, vacant.reads);
  comm.ScatterParts(*reduce_, whole, terms);
  mains_[group_index].gradient = {terms[0], terms[1]};
  vacant = {.memory = whole.Rows(elems - group.part.begin, elems), .reads = comm.num_calls()};
  if (!options_.poison_released) return;
  comm.AwaitReaders(*reduce_, vacant.reads);
  Poison(*reduce_, vacant.memory);
}

void ParamStore::ReduceBucket(std::size_t group_index, const Tensor& whole) {
  const GroupPlan& group = plan_.groups[group_index];
  GroupArrays& arrays = arrays_[group_index];
  Collectives& comm = ReduceComm(group);
  const bool is_first = std::exchange(arrays.sums_are_stale, false);
  comm.ReduceScatterInto(*reduce_, whole, arrays.gradients,
                         is_first ? GradWrite::kStore : GradWrite::kAdd,
                         RowsToSquare(group_index, IsLastMicroBatch() && group.outer == 1));
}

void ParamStore::ReduceGradients(int unit) {
  PhaseClock* const clock = options_.overlaps_reduces ? eager_clock() : options_.clock;
  const PhaseScope reduces(Reduces(unit) ? clock : nullptr, StepPhase::kReduceWait);
  if (IsLastMicroBatch()) {
    all_but_last_reduced_ = reduce_->Record();
    last_reduced_ = Reduces(unit) ? unit : -1;
  }
  reduce_->Wait(compute_.Record());
  for (const std::size_t g : Groups(unit)) {
    if (plan_.groups[g].landing) ExchangeHalves(g);
  }
  const auto in_slot = [](const GroupPlan& group) { return group.uses_gradient_slot(); };
  if (AnyGroup(unit, in_slot)) {
    SlotPool::Slot* slot = gradient_slots_.Find(unit);
    CKPT_CHECK(slot != nullptr && slot->taken);
    const DType wire = plan_.precision.grad_comm;
    ForEachInSlot(unit, slot->memory, wire, in_slot,
                  [&](std::size_t g, const Tensor& whole) { ReduceBucket(g, whole); });
    slot->reads = comms_.reduce_shard->num_calls();
    slot->expert_reads = comms_.reduce_expert_shard->num_calls();
    if (options_.poison_released) {
      AwaitGradientReaders(*reduce_);
      Poison(*reduce_, *slot, wire);
    }
    gradient_slots_.GiveBack(*slot, reduce_->Record(), false);
  }
  if (AnyGroup(unit, [](const GroupPlan& group) { return group.uses_bucket(); })) {
    ++counters_.reduces;
  }
  if (IsLastMicroBatch()) {
    for (const std::size_t g : Groups(unit)) {
      if (plan_.groups[g].trainable) ReduceLate(g);
    }
  }
  if (!options_.overlaps_reduces) compute_.Wait(reduce_->Record());
}

int ParamStore::FinishEarlyGradients() {
  const PhaseScope waits(options_.clock, StepPhase::kReduceWait);
  CKPT_CHECK(IsLastMicroBatch());
  compute_.Wait(all_but_last_reduced_);
  return last_reduced_;
}

void ParamStore::FinishGradients() {
  const PhaseScope waits(options_.clock, StepPhase::kReduceWait);
  CKPT_CHECK(IsLastMicroBatch());
  compute_.Wait(reduce_->Record());
  // After that no gather reads the weights, so the optimizer may write them.
  compute_.Wait(gather_->Record());
  compute_.Wait(gather_outer_->Record());
  AwaitWeightReaders();
}

void ParamStore::AwaitGradientReaders(Queue& queue) {
  for (Collectives* comm :
       {comms_.reduce_shard.get(), comms_.reduce_expert_shard.get(), comms_.reduce_outer.get()}) {
    comm->AwaitReaders(queue, comm->num_calls());
  }
}

}  // namespace ckpt::trainer
