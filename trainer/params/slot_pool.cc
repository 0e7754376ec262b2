#include "trainer/params/slot_pool.h"

#include <algorithm>
#include <utility>

namespace ckpt::trainer {

Result<SlotPool> SlotPool::Create(Device& device, int num_slots, std::uint64_t slot_bytes,
                                  std::uint64_t root_bytes) {
  SlotPool pool;
  if (root_bytes > 0) {
    CKPT_ASSIGN_OR_RETURN(pool.root_.memory, device.Allocate(root_bytes, MemoryUse::kSlots));
  }
  if (slot_bytes == 0) return pool;
  for (int i = 0; i < num_slots; ++i) {
    Slot& slot = pool.slots_.emplace_back();
    CKPT_ASSIGN_OR_RETURN(slot.memory, device.Allocate(slot_bytes, MemoryUse::kSlots));
    pool.order_.push_back(static_cast<std::size_t>(i));
  }
  return pool;
}

SlotPool::Slot* SlotPool::Find(int unit) {
  if (unit == 0) return root_.unit == 0 ? &root_ : nullptr;
  const auto found = std::ranges::find(slots_, unit, &Slot::unit);
  return found == slots_.end() ? nullptr : &*found;
}

SlotPool::Slot* SlotPool::Take(int unit) {
  if (unit == 0) {
    CKPT_CHECK(!root_.taken);
    root_.unit = 0;
    root_.taken = true;
    return &root_;
  }
  const auto free = std::ranges::find_if(order_, [&](std::size_t i) { return !slots_[i].taken; });
  if (free == order_.end()) return nullptr;
  Slot& slot = slots_[*free];
  slot.unit = unit;
  slot.taken = true;
  return &slot;
}

void SlotPool::GiveBack(Slot& slot, Event free, bool keep) {
  CKPT_CHECK(slot.taken);
  slot.taken = false;
  slot.free = std::move(free);
  if (!keep) slot.unit = -1;
  if (&slot == &root_) return;
  const auto index = static_cast<std::size_t>(&slot - slots_.data());
  const auto place = std::ranges::find(order_, index);
  std::rotate(place, place + 1, order_.end());
}

void SlotPool::ForgetAll() {
  CKPT_CHECK(!root_.taken && num_taken() == 0);
  root_.unit = -1;
  for (Slot& slot : slots_) slot.unit = -1;
}

int SlotPool::num_taken() const {
  return static_cast<int>(std::ranges::count_if(slots_, &Slot::taken));
}

}  // namespace ckpt::trainer
