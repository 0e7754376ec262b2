// SlotPool: a few places of fixed address in which whole units live for a while.
#ifndef CKPT_TRAINER_PARAMS_SLOT_POOL_H_
#define CKPT_TRAINER_PARAMS_SLOT_POOL_H_

#include <cstdint>
#include <vector>

#include "core/base/result.h"
#include "trainer/device/device.h"

namespace ckpt::trainer {

// A slot is taken for a unit, used, and given back with the event behind which its memory is free;
// whoever takes it next waits for that event on its own queue. Unit 0, the root, has a slot to
// itself.
//
// Thread-safety: the rank's thread.
class SlotPool {
 public:
  struct Slot {
    Buffer memory;
    int unit = -1;  // whose contents it holds; -1: nobody's
    bool taken = false;
    Event free;   // its last user is done
    Event ready;  // its contents are there
  };

  SlotPool() = default;
  // Errors: kSystem.
  static Result<SlotPool> Create(Device& device, int num_slots, std::uint64_t slot_bytes,
                                 std::uint64_t root_bytes);

  // The slot that holds `unit`, taken or not; null if none does.
  [[nodiscard]] Slot* Find(int unit);
  // Takes a slot for `unit`, the one given back longest ago; its old contents are forgotten. Null
  // if all are taken.
  Slot* Take(int unit);
  // `keep`: the contents may be found again until the slot is taken for another unit.
  void GiveBack(Slot& slot, Event free, bool keep);
  // No slot holds anything any more. REQUIRES: none is taken.
  void ForgetAll();
  [[nodiscard]] int num_taken() const;  // the root's aside

  template <typename Use>
  void ForEach(const Use& use) const {
    if (root_.memory.size_bytes() > 0) use(root_);
    for (const Slot& slot : slots_) use(slot);
  }

 private:
  Slot root_;
  std::vector<Slot> slots_;
  std::vector<std::size_t> order_;  // longest unused first
};

}  // namespace ckpt::trainer

#endif  // CKPT_TRAINER_PARAMS_SLOT_POOL_H_
