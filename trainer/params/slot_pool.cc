#include "trainer/params/slot_pool.h"

#include <algorithm>
#include <utility>

namespace ckpt::trainer {

Result<SlotPool> SlotPool::Create(Device& device, int num_slots, std::uint64_t slot_bytes,
                                  std::span<const OwnSlot> own) {
  SlotPool pool;
  for (const OwnSlot& wanted : own) {
    Own& place = pool.own_.emplace_back();
    place.unit = wanted.unit;
    if (wanted.bytes == 0) continue;
    CKPT_ASSIGN_OR_RETURN(place.slot.memory, device.Allocate(wanted.bytes, MemoryUse::kSlots));
  }
  if (slot_bytes == 0) return pool;
  for (int i = 0; i < num_slots; ++i) {
    Slot& slot = pool.slots_.emplace_back();
    CKPT_ASSIGN_OR_RETURN(slot.memory, device.Allocate(slot_bytes, MemoryUse::kSlots));
    pool.order_.push_back(static_cast<std::size_t>(i));
  }
  return pool;
}

SlotPool::Own* SlotPool::FindOwn(int unit) {
  const auto found = std::ranges::find(own_, unit, &Own::unit);
  return found == own_.end() ? nullptr : &*found;
}

SlotPool::Slot* SlotPool::Find(int unit) {
  if (Own* own = FindOwn(unit); own != nullptr) {
    return own->slot.unit == unit ? &own->slot : nullptr;
  }
  const auto found = std::ranges::find(slots_, unit, &Slot::unit);
  return found == slots_.end() ? nullptr : &*found;
}

SlotPool::Slot* SlotPool::Take(int unit) {
  if (Own* own = FindOwn(unit); own != nullptr) {
    CKPT_CHECK(!own->slot.taken);
    own->slot.unit = unit;
    own->slot.taken = true;
    return &own->slot;
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
  const auto is_it = [&](std::size_t i) { return &slots_[i] == &slot; };
  const auto place = std::ranges::find_if(order_, is_it);
  if (place != order_.end()) std::rotate(place, place + 1, order_.end());  // else a unit's own
}

void SlotPool::Forget(int unit) {
  Slot* const held = Find(unit);
  if (held == nullptr) return;
  CKPT_CHECK(!held->taken);
  held->unit = -1;
}

int SlotPool::num_taken() const {
  return static_cast<int>(std::ranges::count_if(slots_, &Slot::taken));
}

}  // namespace ckpt::trainer
