// The weights of a unit, whole in a slot, and what keeps them up to date.
#include <algorithm>
#include <limits>

#include "trainer/params/internal/group_views.h"

namespace ckpt::trainer {

// The slices of a part come from the replicas, over the slow links between instances; the parts
// come from the shard group. Each has its own queue. A unit's parts wait only for its own update
// and slices, so the first layer's gather does not wait for those of the whole model.
void ParamStore::Refresh(int unit, WrittenBy writer) {
  PhaseClock* const clock = eager_clock();
  const bool is_in_step = clock != nullptr && clock->phase() != StepPhase::kIdle;
  weight_slots_.Forget(unit);
  const Event updated = compute_.Record();
  gather_outer_->Wait(updated);  // and the gathers wait for `sliced`
  const PhaseScope gathers(is_in_step && MayAwaitWeights(unit) ? clock : nullptr,
                           StepPhase::kGatherWait);
  RefreshSlices(unit, updated);
  State(unit).sliced = gather_outer_->Record();
  RefreshWhole(unit, writer);
  State(unit).refreshed = gather_->Record();
}

void ParamStore::RefreshSlices(int unit, const Event& updated) {
  for (const std::size_t g : Groups(unit)) {
    const GroupPlan& group = plan_.groups[g];
    if (group.main.elems == group.part.elems) continue;
    const Tensor& weights = arrays_[g].weights;
    comms_.gather_outer->GatherShards(*gather_outer_, PartOf(weights, group.weights, group.main),
                                      PartOf(weights, group.weights, group.part), updated);
    ++counters_.refreshes;
  }
}

void ParamStore::RefreshWhole(int unit, WrittenBy writer) {
  const auto is_held_whole = [](const GroupPlan& group) {
    return group.part.elems < group.weights.elems;
  };
  if (!AnyGroup(unit, is_held_whole)) return;
  for (const std::size_t g : Groups(unit)) {
    const GroupPlan& group = plan_.groups[g];
    if (!is_held_whole(group)) continue;
    ++counters_.refreshes;
    const Tensor& weights = arrays_[g].weights;
    if (writer == WrittenBy::kUpdate && mains_[g].compute.other) {
      GatherComm(group).AwaitWriters(*gather_, State(unit).sliced);
      continue;
    }
    GatherComm(group).GatherShards(*gather_, PartOf(weights, group.weights, group.part), weights,
                                   State(unit).sliced);
  }
}

void ParamStore::SetWeightViews(const GroupPlan& group, const Tensor& flat) {
  UnitState& state = State(group.unit);
  ForEachParam(group, flat,
               [&](std::size_t param, const Tensor& view) { state.weights[param] = view; });
}

SlotPool::Slot* ParamStore::Gather(int unit) {
  if (SlotPool::Slot* held = weight_slots_.Find(unit); held != nullptr) {
    held->taken = true;
    return held;
  }
  SlotPool::Slot* slot = weight_slots_.Take(unit);
  if (slot == nullptr) return nullptr;
  gather_->Wait(slot->free);
  ForEachInSlot(
      unit, slot->memory, plan_.precision.compute,
      [](const GroupPlan& group) { return group.gathers(); },
      [&](std::size_t g, const Tensor& whole) {
        GatherComm(plan_.groups[g])
            .GatherShards(*gather_, arrays_[g].weights, whole, State(unit).sliced);
      });
  slot->ready = gather_->Record();
  ++counters_.gathers;
  counters_.most_gathered_units =
      std::max(counters_.most_gathered_units, weight_slots_.num_taken());
  return slot;
}

void ParamStore::Prefetch(int unit) {
  if (!options_.prefetches) return;
  if (!AnyGroup(unit, [](const GroupPlan& group) { return group.gathers(); })) return;
  const PhaseScope gathers(eager_clock(), StepPhase::kGatherWait);
  Gather(unit);
}

std::span<const Tensor> ParamStore::Acquire(int unit) {
  UnitState& state = State(unit);
  if (state.users++ > 0) return state.weights;
  const PhaseScope waits(MayAwaitWeights(unit) ? options_.clock : nullptr, StepPhase::kGatherWait);
  compute_.Wait(state.sliced);
  compute_.Wait(state.refreshed);
  for (const std::size_t g : Groups(unit)) {
    if (!plan_.groups[g].gathers()) SetWeightViews(plan_.groups[g], arrays_[g].weights);
  }
  const auto gathers = [](const GroupPlan& group) { return group.gathers(); };
  if (AnyGroup(unit, gathers)) {
    const SlotPool::Slot* slot = Gather(unit);
    CKPT_CHECK(slot != nullptr);  // a schedule never holds more units than there are slots
    compute_.Wait(slot->ready);
    ForEachInSlot(
        unit, slot->memory, plan_.precision.compute, gathers,
        [&](std::size_t g, const Tensor& whole) { SetWeightViews(plan_.groups[g], whole); });
  }
  return state.weights;
}

// Leaves fixed point as it is: it has no value that makes every sum invalid.
void ParamStore::Poison(Queue& queue, const Tensor& memory) {
  if (memory.dtype == DType::kInt64) return;
  ops_.Fill(queue, memory, std::numeric_limits<double>::quiet_NaN());
}

void ParamStore::Poison(Queue& queue, const SlotPool::Slot& slot, DType dtype) {
  const auto elems = static_cast<std::int64_t>(slot.memory.size_bytes() / ElementBytes(dtype));
  Poison(queue, Tensor(slot.memory.data(), dtype, {elems}));
}

void ParamStore::PoisonAll() {
  weight_slots_.ForEach(
      [&](const SlotPool::Slot& slot) { Poison(compute_, slot, plan_.precision.compute); });
  gradient_slots_.ForEach(
      [&](const SlotPool::Slot& slot) { Poison(compute_, slot, plan_.precision.grad_comm); });
}

void ParamStore::Release(int unit) {
  UnitState& state = State(unit);
  CKPT_CHECK(state.users > 0);
  if (--state.users > 0) return;
  SlotPool::Slot* slot = weight_slots_.Find(unit);
  if (slot == nullptr) return;
  if (options_.poison_released) Poison(compute_, *slot, plan_.precision.compute);
  weight_slots_.GiveBack(*slot, compute_.Record(), !options_.poison_released);
}

// Before this rank's weights are written: other ranks gather them.
void ParamStore::AwaitWeightReaders() {
  for (Collectives* comm :
       {comms_.gather_shard.get(), comms_.gather_expert_shard.get(), comms_.gather_outer.get()}) {
    comm->AwaitReaders(compute_, comm->num_calls());
  }
}

}  // namespace ckpt::trainer
