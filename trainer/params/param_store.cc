#include "trainer/params/param_store.h"

#include <utility>

#include "trainer/params/internal/group_views.h"

namespace ckpt::trainer {

Result<std::unique_ptr<ParamStore>> ParamStore::Create(const std::vector<UnitSpec>& units,
                                                       ShardPlan plan, MeshComms& comms, Ops& ops,
                                                       Device& device, Queue& compute,
                                                       const ParamStoreOptions& options) {
  std::unique_ptr<ParamStore> store(
      new ParamStore(units, std::move(plan), comms, ops, device, compute, options));
  CKPT_RETURN_IF_ERROR(store->Allocate());
  return store;
}

ParamStore::ParamStore(const std::vector<UnitSpec>& units, ShardPlan plan, MeshComms& comms,
                       Ops& ops, Device& device, Queue& compute, const ParamStoreOptions& options)
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

Result<Tensor> ParamStore::AllocateArray(GroupArrays& arrays, std::int64_t elems, DType dtype,
                                         MemoryUse use) {
  CKPT_ASSIGN_OR_RETURN(
      Buffer buffer,
      device_.Allocate(static_cast<std::uint64_t>(elems) * ElementBytes(dtype), use));
  const Tensor array(buffer.data(), dtype, {elems});
  arrays.memory.push_back(std::move(buffer));
  return array;
}

// Checks what ParamSpec promises about the parameters of a stack.
void ParamStore::CheckStacks(const GroupPlan& group) const {
  const FlatLayout& layout = group.layout;
  for (std::size_t i = 1; i < group.params.size(); ++i) {
    const std::string& stack = Spec(group, i).stack;
    if (stack.empty() || stack != Spec(group, i - 1).stack) continue;
    CKPT_CHECK(layout.offsets[i] == layout.offsets[i - 1] + layout.num_elems[i - 1]);
  }
}

Status ParamStore::AllocateGroup(const GroupPlan& group) {
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

Tensor ParamStore::MainSums(std::size_t index) const {
  const GroupPlan& group = plan_.groups[index];
  return PartOf(arrays_[index].gradients, group.gradients, group.main);
}

void ParamStore::ListMain(std::size_t index) {
  const GroupPlan& group = plan_.groups[index];
  const GroupArrays& arrays = arrays_[index];
  MainArrays& main = mains_.emplace_back();
  main.group = index;
  main.weights = arrays.main;
  if (group.trainable) {
    main.gradient = MainSums(index);
    if (!group.main_is_weights) main.compute = PartOf(arrays.weights, group.weights, group.main);
  }
  main.counts = group.counts_main;
  main.pieces = ListPieces(units_[static_cast<std::size_t>(group.unit)], group);
}

Status ParamStore::Allocate() {
  arrays_.reserve(plan_.groups.size());
  for (const GroupPlan& group : plan_.groups) CKPT_RETURN_IF_ERROR(AllocateGroup(group));
  for (std::size_t g = 0; g < plan_.groups.size(); ++g) ListMain(g);
  states_.resize(units_.size());
  for (std::size_t u = 0; u < units_.size(); ++u) {
    states_[u].weights.resize(units_[u].params.size());
    states_[u].gradients.resize(units_[u].params.size());
  }
  CKPT_RETURN_IF_ERROR(AllocateSlots());
  CKPT_RETURN_IF_ERROR(AllocateLandings());
  RegisterMemory();
  for (std::size_t g = 0; g < plan_.groups.size(); ++g) CKPT_RETURN_IF_ERROR(FindOtherWeights(g));
  return OkStatus();
}

Status ParamStore::FindOtherWeights(std::size_t group_index) {
  const GroupPlan& group = plan_.groups[group_index];
  if (!group.UpdatesMayExchange()) return OkStatus();
  Collectives& comm = GatherComm(group);
  CKPT_ASSIGN_OR_RETURN(const std::vector<Tensor> views, comm.Views(arrays_[group_index].weights));
  if (views.empty()) return OkStatus();
  Tensor other =
      PartOf(views[static_cast<std::size_t>(1 - comm.rank())], group.weights, group.main);
  mains_[group_index].compute = {mains_[group_index].compute.own, other};
  return OkStatus();
}

Status ParamStore::AllocateSlots() {
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
  return OkStatus();
}

Status ParamStore::AllocateLandings() {
  const DType wire = plan_.precision.grad_comm;
  for (const Landing& landing : plan_.landings) {
    CKPT_ASSIGN_OR_RETURN(
        Buffer memory,
        device_.Allocate(static_cast<std::uint64_t>(landing.elems) * ElementBytes(wire),
                         MemoryUse::kGradients));
    landings_.push_back(std::move(memory));
  }
  vacant_.resize(landings_.size());
  return OkStatus();
}

void ParamStore::RegisterMemory() {
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
  for (const Buffer& memory : landings_) register_sent(memory);
  if (plan_.wire_bytes == 0) return;
  register_sent(wire_memory_);
  comms_.reduce_outer->Register(wire_memory_);
}

Status ParamStore::SetWeights(const FillRows& fill, int threads) {
  AwaitWeightReaders();
  Status filled;
  for (const MainArrays& main : mains_) {
    filled = piece_rows_.Fill(main.pieces, main.weights, fill, compute_, threads);
    if (!filled.ok()) break;
    if (main.compute.own) ops_.Cast(compute_, main.weights, main.compute.own);
  }
  // Even after a failure: the other ranks wait for this one's part.
  for (int unit = 0; unit < static_cast<int>(units_.size()); ++unit) {
    Refresh(unit, WrittenBy::kOther);
  }
  Status refreshed = Synchronize();
  return filled.ok() ? refreshed : filled;
}

Status ParamStore::ReadWeights(const PlaceRows& place, Queue& queue) {
  for (const MainArrays& main : mains_) {
    CKPT_RETURN_IF_ERROR(piece_rows_.Read(main.pieces, main.weights, place, queue));
  }
  return OkStatus();
}

Status ParamStore::Synchronize() {
  Status status = compute_.Synchronize();
  for (Queue* queue : {gather_.get(), gather_outer_.get(), reduce_.get()}) {
    Status queue_status = queue->Synchronize();
    if (status.ok()) status = std::move(queue_status);
  }
  return status;
}

}  // namespace ckpt::trainer
