// SlotPool: a few memory areas with fixed addresses that hold whole units for some time.
#ifndef CKPT_TRAINER_PARAMS_SLOT_POOL_H_
#define CKPT_TRAINER_PARAMS_SLOT_POOL_H_

#include <cstdint>
#include <vector>

#include "core/base/result.h"
#include "trainer/device/device.h"

namespace ckpt::trainer {

// Take gives a slot to a unit. GiveBack returns it with the event after which its memory is free;
// the next user waits for that event on its own queue. Unit 0, the root, has its own slot.
//
// Thread-safety: the rank's thread.
class SlotPool {
 public:
  struct Slot {
    Buffer memory;
    int unit = -1;  // the unit whose contents it holds; -1: none
    bool taken = false;
    Event free;   // its last user is done
    Event ready;  // its contents are complete
    // Gradients: the calls of reduce_shard and reduce_expert_shard after which no rank reads it.
    std::uint64_t reads = 0;
    std::uint64_t expert_reads = 0;
  };

  SlotPool() = default;
  // Errors: kSystem.
  static Result<SlotPool> Create(Device& device, int num_slots, std::uint64_t slot_bytes,
                                 std::uint64_t root_bytes);

  // The slot that holds `unit`, taken or not; null if there is none.
  [[nodiscard]] Slot* Find(int unit);
  // Takes the slot that was given back longest ago, for `unit`. Its old contents are forgotten.
  // Null if all are taken.
  Slot* Take(int unit);
  // `keep`: Find still finds the contents until the slot is taken for another unit.
  void GiveBack(Slot& slot, Event free, bool keep);
  // Forgets the contents of all slots. REQUIRES: none is taken.
  void ForgetAll();
  [[nodiscard]] int num_taken() const;  // without the root's

  // Without the root's if it has none.
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
