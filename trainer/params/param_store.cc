#include "trainer/params/param_store.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "trainer/params/slot_pool.h"

namespace ckpt::trainer {
namespace {

// The part `range` of an array that holds the range `held` of its group.
Tensor PartOf(const Tensor& array, const FlatRange& held, const FlatRange& range) {
  return array.Rows(range.begin - held.begin, range.elems);
}

// A parameter as a view of an array that holds its group's flat elements.
Tensor ParamView(const Tensor& flat, const FlatLayout& layout, std::size_t index,
                 const ParamSpec& spec) {
  Tensor view = flat.Rows(layout.offsets[index], layout.num_elems[index]);
  view.ndim = static_cast<int>(spec.shape.size());
  std::ranges::copy(spec.shape, view.dims.begin());
  return view;
}

}  // namespace

class ParamStore::Impl {
 public:
  Impl(const std::vector<UnitSpec>& units, ShardPlan plan, MeshComms& comms, Ops& ops,
       Device& device, Queue& compute, const ParamStoreOptions& options)
      : units_(units),
        plan_(std::move(plan)),
        comms_(comms),
        ops_(ops),
        device_(device),
        compute_(compute),
        options_(options),
        piece_rows_(ops, device),
        gather_(device.MakeQueue("gather")),
        gather_outer_(device.MakeQueue("gather outer")),
        reduce_(device.MakeQueue("reduce")) {}

  Status Allocate();
  Status SetWeights(const FillRows& fill);
  Status ReadWeights(const PlaceRows& place, Queue& queue);

  void BeginStep(int num_micro_batches);
  void BeginMicroBatch() { ++micro_batch_; }
  void FinishGradients();
  void WeightsChanged();
  Status Synchronize();

  void Prefetch(int unit);
  std::span<const Tensor> Acquire(int unit);
  void Release(int unit);
  std::span<const Gradient> AcquireGradients(int unit);
  void ReduceGradients(int unit);

  [[nodiscard]] PieceRows& piece_rows() { return piece_rows_; }
  [[nodiscard]] std::span<const MainArrays> mains() const { return mains_; }
  [[nodiscard]] const ShardPlan& plan() const { return plan_; }
  [[nodiscard]] const ParamStoreCounters& counters() const { return counters_; }

 private:
  // The persistent arrays of one group. Each holds the range that the plan names.
  struct GroupArrays {
    std::vector<Buffer> memory;
    Tensor weights;
    Tensor main;
    Tensor gradients;
    std::vector<FlatGap> gaps;    // in the whole array
    bool sums_are_stale = false;  // from the last step: the next micro-batch overwrites them
  };
  struct UnitState {
    int users = 0;
    std::vector<Tensor> weights;
    std::vector<Gradient> gradients;
    Event sliced;     // this rank's part is up to date: the replicas' slices have arrived
    Event refreshed;  // compute weights that are held whole are up to date too
  };

  Result<Tensor> AllocateArray(GroupArrays& arrays, std::int64_t elems, DType dtype, MemoryUse use);
  Status AllocateGroup(const GroupPlan& group);
  void CheckStacks(const GroupPlan& group) const;
  // Tells the collectives of each array which memory they will use.
  void RegisterMemory();
  void ListMain(std::size_t index);

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
  // Calls `use(group, array)` for each group of `unit` that is in a slot, with its whole array
  // there.
  template <typename Predicate, typename Use>
  void ForEachInSlot(int unit, const Buffer& memory, DType dtype, Predicate lies_there,
                     const Use& use);

  // Updates this rank's parts from the replicas where it updates only slices of them.
  void RefreshSlices(int unit, const Event& updated);
  // Updates weights that are held whole from the shard group.
  void RefreshWhole(int unit);
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
  // Enqueues the reductions of a group's sums after the last micro-batch, on the reduce queue.
  void ReduceLate(const GroupPlan& group, GroupArrays& arrays);
  // Sums `region` over `comm`. Afterwards `own`, a part of it or all of it, is valid.
  void ReduceSums(Collectives& comm, const Tensor& region, const Tensor& own);

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
  int num_micro_batches_ = 0;
  int micro_batch_ = 0;  // counted from 1
  ParamStoreCounters counters_;
  // Last, so that the queues end their work before the memory is freed.
  std::unique_ptr<Queue> gather_;
  std::unique_ptr<Queue> gather_outer_;
  std::unique_ptr<Queue> reduce_;
};

Result<Tensor> ParamStore::Impl::AllocateArray(GroupArrays& arrays, std::int64_t elems, DType dtype,
                                               MemoryUse use) {
  CKPT_ASSIGN_OR_RETURN(
      Buffer buffer,
      device_.Allocate(static_cast<std::uint64_t>(elems) * ElementBytes(dtype), use));
  const Tensor array(buffer.data(), dtype, {elems});
  arrays.memory.push_back(std::move(buffer));
  return array;
}

// Checks what ParamSpec promises about the parameters of a stack.
void ParamStore::Impl::CheckStacks(const GroupPlan& group) const {
  const FlatLayout& layout = group.layout;
  for (std::size_t i = 1; i < group.params.size(); ++i) {
    const std::string& stack = Spec(group, i).stack;
    if (stack.empty() || stack != Spec(group, i - 1).stack) continue;
    CKPT_CHECK(layout.offsets[i] == layout.offsets[i - 1] + layout.num_elems[i - 1]);
  }
}

Status ParamStore::Impl::AllocateGroup(const GroupPlan& group) {
  CheckStacks(group);
  const Precision& precision = plan_.precision;
  GroupArrays& arrays = arrays_.emplace_back();
  CKPT_ASSIGN_OR_RETURN(arrays.weights, AllocateArray(arrays, group.weights.elems,
                                                      precision.compute, MemoryUse::kWeights));
  arrays.main = PartOf(arrays.weights, group.weights, group.main);
  if (!group.trainable) return OkStatus();
  if (!group.main_is_weights) {
    CKPT_ASSIGN_OR_RETURN(
        arrays.main,
        AllocateArray(arrays, group.main.elems, precision.main_params, MemoryUse::kMainWeights));
  }
  CKPT_ASSIGN_OR_RETURN(
      arrays.gradients,
      AllocateArray(arrays, group.gradients.elems, precision.main_grads, MemoryUse::kGradients));
  arrays.gaps = ListGaps(group.layout);
  return OkStatus();
}

void ParamStore::Impl::ListMain(std::size_t index) {
  const GroupPlan& group = plan_.groups[index];
  const GroupArrays& arrays = arrays_[index];
  MainArrays& main = mains_.emplace_back();
  main.group = index;
  main.weights = arrays.main;
  if (group.trainable) {
    main.gradient = PartOf(arrays.gradients, group.gradients, group.main);
    if (!group.main_is_weights) main.compute = PartOf(arrays.weights, group.weights, group.main);
  }
  main.counts = group.counts_main;
  main.pieces = ListPieces(units_[static_cast<std::size_t>(group.unit)], group);
}

Status ParamStore::Impl::Allocate() {
  arrays_.reserve(plan_.groups.size());
  for (const GroupPlan& group : plan_.groups) CKPT_RETURN_IF_ERROR(AllocateGroup(group));
  for (std::size_t g = 0; g < plan_.groups.size(); ++g) ListMain(g);
  states_.resize(units_.size());
  for (std::size_t u = 0; u < units_.size(); ++u) {
    states_[u].weights.resize(units_[u].params.size());
    states_[u].gradients.resize(units_[u].params.size());
  }
  std::vector<SlotPool::OwnSlot> own_weights, own_gradients;
  for (const ShardPlan::EndPlace& end : plan_.ends) {
    own_weights.push_back({.unit = end.unit, .bytes = end.weight_bytes});
    own_gradients.push_back({.unit = end.unit, .bytes = end.gradient_bytes});
  }
  CKPT_ASSIGN_OR_RETURN(weight_slots_, SlotPool::Create(device_, plan_.slots.weight_slots,
                                                        plan_.weight_slot_bytes, own_weights));
  CKPT_ASSIGN_OR_RETURN(gradient_slots_,
                        SlotPool::Create(device_, plan_.slots.gradient_slots,
                                         plan_.gradient_slot_bytes, own_gradients));
  if (options_.poison_released) PoisonAll();
  if (plan_.wire_bytes > 0) {
    CKPT_ASSIGN_OR_RETURN(wire_memory_, device_.Allocate(plan_.wire_bytes, MemoryUse::kSlots));
  }
  RegisterMemory();
  return OkStatus();
}

void ParamStore::Impl::RegisterMemory() {
  for (std::size_t g = 0; g < plan_.groups.size(); ++g) {
    for (const Buffer& memory : arrays_[g].memory) {
      GatherComm(plan_.groups[g]).Register(memory);
      comms_.gather_outer->Register(memory);
      ReduceComm(plan_.groups[g]).Register(memory);
      comms_.reduce_outer->Register(memory);
    }
  }
  weight_slots_.ForEach([&](const SlotPool::Slot& slot) {
    comms_.gather_shard->Register(slot.memory);
    comms_.gather_expert_shard->Register(slot.memory);
  });
  const auto register_sent = [&](const Buffer& memory) {
    comms_.reduce_shard->Register(memory);
    comms_.reduce_expert_shard->Register(memory);
  };
  gradient_slots_.ForEach([&](const SlotPool::Slot& slot) { register_sent(slot.memory); });
  if (plan_.wire_bytes == 0) return;
  register_sent(wire_memory_);
  comms_.reduce_outer->Register(wire_memory_);
}

Status ParamStore::Impl::SetWeights(const FillRows& fill) {
  AwaitWeightReaders();
  Status filled;
  for (const MainArrays& main : mains_) {
    filled = piece_rows_.Fill(main.pieces, main.weights, fill, compute_);
    if (!filled.ok()) break;
    if (main.compute) ops_.Cast(compute_, main.weights, main.compute);
  }
  // Even after a failure: the other ranks wait for this one's part.
  WeightsChanged();
  Status refreshed = Synchronize();
  return filled.ok() ? refreshed : filled;
}

Status ParamStore::Impl::ReadWeights(const PlaceRows& place, Queue& queue) {
  for (const MainArrays& main : mains_) {
    CKPT_RETURN_IF_ERROR(piece_rows_.Read(main.pieces, main.weights, place, queue));
  }
  return OkStatus();
}

// The slices of a part come from the replicas, over the slow links between instances; the parts
// come from the shard group. Each has its own queue. A unit's parts wait only for its own slices,
// so the first layer's gather does not wait for the slices of the whole model.
void ParamStore::Impl::WeightsChanged() {
  weight_slots_.ForgetAll();
  const Event updated = compute_.Record();
  gather_outer_->Wait(updated);
  gather_->Wait(updated);
  for (int unit = 0; unit < static_cast<int>(units_.size()); ++unit) {
    RefreshSlices(unit, updated);
    State(unit).sliced = gather_outer_->Record();
    RefreshWhole(unit);
    State(unit).refreshed = gather_->Record();
  }
}

void ParamStore::Impl::RefreshSlices(int unit, const Event& updated) {
  const CollectiveBatch batch(device_);
  for (const std::size_t g : Groups(unit)) {
    const GroupPlan& group = plan_.groups[g];
    if (group.main.elems == group.part.elems) continue;
    const Tensor& weights = arrays_[g].weights;
    comms_.gather_outer->GatherShards(*gather_outer_, PartOf(weights, group.weights, group.main),
                                      PartOf(weights, group.weights, group.part), updated);
    ++counters_.refreshes;
  }
}

void ParamStore::Impl::RefreshWhole(int unit) {
  const auto is_held_whole = [](const GroupPlan& group) {
    return group.part.elems < group.weights.elems;
  };
  if (!AnyGroup(unit, is_held_whole)) return;
  const CollectiveBatch batch(device_);
  for (const std::size_t g : Groups(unit)) {
    const GroupPlan& group = plan_.groups[g];
    if (!is_held_whole(group)) continue;
    const Tensor& weights = arrays_[g].weights;
    GatherComm(group).GatherShards(*gather_, PartOf(weights, group.weights, group.part), weights,
                                   State(unit).sliced);
    ++counters_.refreshes;
  }
}

void ParamStore::Impl::BeginStep(int num_micro_batches) {
  AwaitGradientReaders(compute_);
  num_micro_batches_ = num_micro_batches;
  micro_batch_ = 0;
  for (std::size_t g = 0; g < plan_.groups.size(); ++g) {
    if (!plan_.groups[g].trainable) continue;
    arrays_[g].sums_are_stale = true;
    if (options_.poison_released) Poison(compute_, arrays_[g].gradients);
  }
}

template <typename Predicate, typename Use>
void ParamStore::Impl::ForEachInSlot(int unit, const Buffer& memory, DType dtype,
                                     Predicate lies_there, const Use& use) {
  std::uint64_t offset_bytes = 0;
  for (const std::size_t g : Groups(unit)) {
    const GroupPlan& group = plan_.groups[g];
    if (!lies_there(group)) continue;
    use(g, Tensor(memory.data() + offset_bytes, dtype, {group.layout.total_elems}));
    offset_bytes += SlotBytes(group, dtype);
  }
}

template <typename Use>
void ParamStore::Impl::ForEachParam(const GroupPlan& group, const Tensor& flat,
                                    const Use& use) const {
  for (std::size_t i = 0; i < group.params.size(); ++i) {
    use(group.params[i], ParamView(flat, group.layout, i, Spec(group, i)));
  }
}

void ParamStore::Impl::SetWeightViews(const GroupPlan& group, const Tensor& flat) {
  UnitState& state = State(group.unit);
  ForEachParam(group, flat,
               [&](std::size_t param, const Tensor& view) { state.weights[param] = view; });
}

void ParamStore::Impl::SetGradientViews(std::size_t group_index, const Tensor& flat,
                                        GradWrite write) {
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

SlotPool::Slot* ParamStore::Impl::Gather(int unit) {
  if (SlotPool::Slot* held = weight_slots_.Find(unit); held != nullptr) {
    held->taken = true;
    return held;
  }
  SlotPool::Slot* slot = weight_slots_.Take(unit);
  if (slot == nullptr) return nullptr;
  gather_->Wait(slot->free);
  {
    const CollectiveBatch batch(device_);
    ForEachInSlot(
        unit, slot->memory, plan_.precision.compute,
        [](const GroupPlan& group) { return group.gathers(); },
        [&](std::size_t g, const Tensor& whole) {
          GatherComm(plan_.groups[g])
              .GatherShards(*gather_, arrays_[g].weights, whole, State(unit).sliced);
        });
  }
  slot->ready = gather_->Record();
  ++counters_.gathers;
  counters_.most_gathered_units =
      std::max(counters_.most_gathered_units, weight_slots_.num_taken());
  return slot;
}

void ParamStore::Impl::Prefetch(int unit) {
  if (!options_.prefetches) return;
  if (AnyGroup(unit, [](const GroupPlan& group) { return group.gathers(); })) Gather(unit);
}

std::span<const Tensor> ParamStore::Impl::Acquire(int unit) {
  UnitState& state = State(unit);
  if (state.users++ > 0) return state.weights;
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
void ParamStore::Impl::Poison(Queue& queue, const Tensor& memory) {
  if (memory.dtype == DType::kInt64) return;
  ops_.Fill(queue, memory, std::numeric_limits<double>::quiet_NaN());
}

void ParamStore::Impl::Poison(Queue& queue, const SlotPool::Slot& slot, DType dtype) {
  const auto elems = static_cast<std::int64_t>(slot.memory.size_bytes() / ElementBytes(dtype));
  Poison(queue, Tensor(slot.memory.data(), dtype, {elems}));
}

void ParamStore::Impl::PoisonAll() {
  weight_slots_.ForEach(
      [&](const SlotPool::Slot& slot) { Poison(compute_, slot, plan_.precision.compute); });
  gradient_slots_.ForEach(
      [&](const SlotPool::Slot& slot) { Poison(compute_, slot, plan_.precision.grad_comm); });
}

void ParamStore::Impl::Release(int unit) {
  UnitState& state = State(unit);
  CKPT_CHECK(state.users > 0);
  if (--state.users > 0) return;
  SlotPool::Slot* slot = weight_slots_.Find(unit);
  if (slot == nullptr) return;
  if (options_.poison_released) Poison(compute_, *slot, plan_.precision.compute);
  weight_slots_.GiveBack(*slot, compute_.Record(), !options_.poison_released);
}

std::span<const Gradient> ParamStore::Impl::AcquireGradients(int unit) {
  const auto in_bucket = [](const GroupPlan& group) { return group.uses_bucket(); };
  if (AnyGroup(unit, in_bucket)) {
    SlotPool::Slot* slot = gradient_slots_.Take(unit);
    CKPT_CHECK(slot != nullptr);
    compute_.Wait(slot->free);
    comms_.reduce_shard->AwaitReaders(compute_, slot->reads);
    comms_.reduce_expert_shard->AwaitReaders(compute_, slot->expert_reads);
    ForEachInSlot(
        unit, slot->memory, plan_.precision.grad_comm, in_bucket,
        [&](std::size_t g, const Tensor& whole) { SetGradientViews(g, whole, GradWrite::kStore); });
  }
  for (const std::size_t g : Groups(unit)) {
    const GroupPlan& group = plan_.groups[g];
    if (!group.trainable || group.uses_bucket()) continue;
    GroupArrays& arrays = arrays_[g];
    SetGradientViews(g, arrays.gradients,
                     arrays.sums_are_stale ? GradWrite::kStore : GradWrite::kAdd);
    arrays.sums_are_stale = false;
  }
  return State(unit).gradients;
}

void ParamStore::Impl::ReduceSums(Collectives& comm, const Tensor& region, const Tensor& own) {
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
    comm.ReduceScatterInto(*reduce_, sent, own, GradWrite::kStore, {});
    return;
  }
  // Every rank gets the whole sum as it was sent, so a narrow wire rounds it.
  comm.AllReduce(*reduce_, sent, ReduceOp::kSum);
  if (converts) ops_.Cast(*reduce_, sent, own);
}

void ParamStore::Impl::ReduceLate(const GroupPlan& group, GroupArrays& arrays) {
  const auto in_sums = [&](const FlatRange& range) {
    return PartOf(arrays.gradients, group.gradients, range);
  };
  const Tensor part = in_sums(group.part);
  if (!group.uses_bucket() && group.inner > 1)
    ReduceSums(ReduceComm(group), arrays.gradients, part);
  if (group.outer > 1) ReduceSums(*comms_.reduce_outer, part, in_sums(group.main));
}

void ParamStore::Impl::ReduceGradients(int unit) {
  reduce_->Wait(compute_.Record());
  const auto in_bucket = [](const GroupPlan& group) { return group.uses_bucket(); };
  if (AnyGroup(unit, in_bucket)) {
    SlotPool::Slot* slot = gradient_slots_.Find(unit);
    CKPT_CHECK(slot != nullptr && slot->taken);
    const DType wire = plan_.precision.grad_comm;
    ForEachInSlot(unit, slot->memory, wire, in_bucket, [&](std::size_t g, const Tensor& whole) {
      const GroupPlan& group = plan_.groups[g];
      GroupArrays& arrays = arrays_[g];
      ReduceComm(group).ReduceScatterInto(
          *reduce_, whole, arrays.gradients,
          arrays.sums_are_stale ? GradWrite::kStore : GradWrite::kAdd, {});
      arrays.sums_are_stale = false;
    });
    ++counters_.reduces;
    slot->reads = comms_.reduce_shard->num_calls();
    slot->expert_reads = comms_.reduce_expert_shard->num_calls();
    if (options_.poison_released) {
      AwaitGradientReaders(*reduce_);
      Poison(*reduce_, *slot, wire);
    }
    gradient_slots_.GiveBack(*slot, reduce_->Record(), false);
  }
  if (IsLastMicroBatch()) {
    for (const std::size_t g : Groups(unit)) {
      if (plan_.groups[g].trainable) ReduceLate(plan_.groups[g], arrays_[g]);
    }
  }
  if (!options_.overlaps_reduces) compute_.Wait(reduce_->Record());
}

void ParamStore::Impl::FinishGradients() {
  CKPT_CHECK(IsLastMicroBatch());
  compute_.Wait(reduce_->Record());
  // After that no gather reads the weights, so the optimizer may write them.
  compute_.Wait(gather_->Record());
  compute_.Wait(gather_outer_->Record());
  AwaitWeightReaders();
}

// Before this rank's weights are written: other ranks gather them.
void ParamStore::Impl::AwaitWeightReaders() {
  for (Collectives* comm :
       {comms_.gather_shard.get(), comms_.gather_expert_shard.get(), comms_.gather_outer.get()}) {
    comm->AwaitReaders(compute_, comm->num_calls());
  }
}

void ParamStore::Impl::AwaitGradientReaders(Queue& queue) {
  for (Collectives* comm :
       {comms_.reduce_shard.get(), comms_.reduce_expert_shard.get(), comms_.reduce_outer.get()}) {
    comm->AwaitReaders(queue, comm->num_calls());
  }
}

Status ParamStore::Impl::Synchronize() {
  Status status = compute_.Synchronize();
  for (Queue* queue : {gather_.get(), gather_outer_.get(), reduce_.get()}) {
    Status queue_status = queue->Synchronize();
    if (status.ok()) status = std::move(queue_status);
  }
  return status;
}

ParamStore::ParamStore(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
ParamStore::~ParamStore() = default;

Result<std::unique_ptr<ParamStore>> ParamStore::Create(const std::vector<UnitSpec>& units,
                                                       ShardPlan plan, MeshComms& comms, Ops& ops,
                                                       Device& device, Queue& compute,
                                                       const ParamStoreOptions& options) {
  auto impl = std::make_unique<Impl>(units, std::move(plan), comms, ops, device, compute, options);
  CKPT_RETURN_IF_ERROR(impl->Allocate());
  return std::unique_ptr<ParamStore>(new ParamStore(std::move(impl)));
}

Status ParamStore::SetWeights(const FillRows& fill) { return impl_->SetWeights(fill); }
Status ParamStore::ReadWeights(const PlaceRows& place, Queue& queue) {
  return impl_->ReadWeights(place, queue);
}
PieceRows& ParamStore::piece_rows() { return impl_->piece_rows(); }
void ParamStore::BeginStep(int num_micro_batches) { impl_->BeginStep(num_micro_batches); }
void ParamStore::BeginMicroBatch() { impl_->BeginMicroBatch(); }
void ParamStore::FinishGradients() { impl_->FinishGradients(); }
void ParamStore::WeightsChanged() { impl_->WeightsChanged(); }
std::span<const MainArrays> ParamStore::mains() const { return impl_->mains(); }
const ShardPlan& ParamStore::plan() const { return impl_->plan(); }
const ParamStoreCounters& ParamStore::counters() const { return impl_->counters(); }
Status ParamStore::Synchronize() { return impl_->Synchronize(); }
void ParamStore::Prefetch(int unit) { impl_->Prefetch(unit); }
std::span<const Tensor> ParamStore::Acquire(int unit) { return impl_->Acquire(unit); }
void ParamStore::Release(int unit) { impl_->Release(unit); }
std::span<const Gradient> ParamStore::AcquireGradients(int unit) {
  return impl_->AcquireGradients(unit);
}
void ParamStore::ReduceGradients(int unit) { impl_->ReduceGradients(unit); }

}  // namespace ckpt::trainer
