// HostMoments: the optimizer's state in the memory of the host. Blocks of it pass through the
// device while an update reads and writes them.
#ifndef CKPT_TRAINER_OPTIM_HOST_MOMENTS_H_
#define CKPT_TRAINER_OPTIM_HOST_MOMENTS_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "core/base/result.h"
#include "trainer/device/device.h"
#include "trainer/device/queue.h"

namespace ckpt::trainer {

// Each moment is float32. One queue brings blocks to the device and another takes them back, so
// both directions of the link and the update are at work at once. The blocks of the next update
// that have room on the device come while its gradients are still being computed.
//
// Thread-safety: the rank's thread.
class HostMoments {
 public:
  // Blocks on the device at once: one comes, one is updated, one goes.
  static constexpr std::size_t kSlots = 3;
  static constexpr std::int64_t kBlockElems = std::int64_t{4} << 20;

  // Device memory for states of which the largest has `largest` elements.
  [[nodiscard]] static std::uint64_t DeviceBytes(std::int64_t largest, int moments,
                                                 std::int64_t block_elems);

  // States of `elems` elements each, all zero. `device` outlives it. Errors: kSystem.
  static Result<HostMoments> Create(std::span<const std::int64_t> elems, int moments,
                                    std::int64_t block_elems, Device& device);
  HostMoments(HostMoments&&) = default;
  HostMoments& operator=(HostMoments&&) = default;
  // Waits for what is under way.
  ~HostMoments();

  // Every update begins with it.
  void BeginUpdate() { before_ = last_; }
  // Calls `update(first, elems, moments)` for one block of [begin, begin + elems) after the other.
  // What it enqueues on `compute` finds the block's moments on the device;
  // what it leaves there goes back.
  using Update =
      std::function<void(std::int64_t first, std::int64_t elems, std::span<const Tensor> moments)>;
  void ForBlocks(Queue& compute, std::size_t state, std::int64_t begin, std::int64_t elems,
                 const Update& update);

  // Waits until everything is back. Errors: those of the queues.
  Status AwaitAll();
  // On the host. REQUIRES: everything is back.
  [[nodiscard]] std::span<float> values(std::size_t state, int moment);

 private:
  struct Slot {
    Buffer memory;
    Event free;  // what was there is back
  };

  HostMoments(int moments, std::int64_t block_elems, Device& device)
      : moments_(moments), block_elems_(block_elems), device_(&device) {}
  [[nodiscard]] float* HostAt(std::size_t state, int moment, std::int64_t first) const;

  int moments_;
  std::int64_t block_elems_;
  std::int64_t slot_elems_ = 0;  // of a moment
  Device* device_;
  std::vector<std::int64_t> elems_;   // of each state
  std::vector<PinnedBuffer> memory_;  // of each state: moment after moment
  std::array<Slot, kSlots> slots_;
  std::size_t next_slot_ = 0;
  // By state, when its blocks of the update before are back, and of this one so far.
  std::vector<Event> before_;
  std::vector<Event> last_;
  std::unique_ptr<Queue> to_device_;
  std::unique_ptr<Queue> to_host_;
};

}  // namespace ckpt::trainer

#endif  // CKPT_TRAINER_OPTIM_HOST_MOMENTS_H_
