// SlotPool: a few memory areas with fixed addresses that hold whole units for some time.
#ifndef CKPT_TRAINER_PARAMS_SLOT_POOL_H_
#define CKPT_TRAINER_PARAMS_SLOT_POOL_H_

#include <cstdint>
#include <span>
#include <vector>

#include "core/base/result.h"
#include "trainer/device/device.h"

namespace ckpt::trainer {

// Take gives a slot to a unit. GiveBack returns it with the event after which its memory is free;
// the next user waits for that event on its own queue. Some units have a slot of their own.
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

  struct OwnSlot {
    int unit = 0;
    std::uint64_t bytes = 0;
  };

  SlotPool() = default;
  // Errors: kSystem.
  static Result<SlotPool> Create(Device& device, int num_slots, std::uint64_t slot_bytes,
                                 std::span<const OwnSlot> own);

  // The slot that holds `unit`, taken or not; null if there is none.
  [[nodiscard]] Slot* Find(int unit);
  // Takes the slot that was given back longest ago, for `unit`. Its old contents are forgotten.
  // Null if all are taken.
  Slot* Take(int unit);
  // `keep`: Find still finds the contents until the slot is taken for another unit.
  void GiveBack(Slot& slot, Event free, bool keep);
  // Find does not find `unit` any more. REQUIRES: it is not taken.
  void Forget(int unit);
  [[nodiscard]] int num_taken() const;  // without units' own

  // Those that have memory.
  template <typename Use>
  void ForEach(const Use& use) const {
    for (const Own& own : own_) {
      if (own.slot.memory.size_bytes() > 0) use(own.slot);
    }
    for (const Slot& slot : slots_) use(slot);
  }

 private:
  struct Own {
    int unit = 0;
    Slot slot;
  };
  [[nodiscard]] Own* FindOwn(int unit);

  std::vector<Own> own_;
  std::vector<Slot> slots_;
  std::vector<std::size_t> order_;  // longest unused first
};

}  // namespace ckpt::trainer

#endif  // CKPT_TRAINER_PARAMS_SLOT_POOL_H_
