#include "trainer/optim/host_moments.h"

#include <algorithm>
#include <cstring>
#include <utility>

namespace ckpt::trainer {

std::uint64_t HostMoments::DeviceBytes(std::int64_t largest, int moments,
                                       std::int64_t block_elems) {
  return kSlots * static_cast<std::uint64_t>(moments * std::min(largest, block_elems)) *
         sizeof(float);
}

Result<HostMoments> HostMoments::Create(std::span<const std::int64_t> elems, int moments,
                                        std::int64_t block_elems, Device& device) {
  HostMoments host(moments, block_elems, device);
  host.elems_.assign(elems.begin(), elems.end());
  for (const std::int64_t of_state : elems) {
    const std::uint64_t size_bytes = static_cast<std::uint64_t>(moments * of_state) * sizeof(float);
    CKPT_ASSIGN_OR_RETURN(PinnedBuffer memory, device.AllocatePinned(size_bytes));
    std::memset(memory.data(), 0, size_bytes);
    host.memory_.push_back(std::move(memory));
    host.slot_elems_ = std::max(host.slot_elems_, std::min(of_state, block_elems));
  }
  for (Slot& slot : host.slots_) {
    CKPT_ASSIGN_OR_RETURN(
        slot.memory,
        device.Allocate(static_cast<std::uint64_t>(moments * host.slot_elems_) * sizeof(float),
                        MemoryUse::kOptimizer));
  }
  host.before_.resize(elems.size());
  host.last_.resize(elems.size());
  host.to_device_ = device.MakeQueue("moments to device");
  host.to_host_ = device.MakeQueue("moments to host");
  return host;
}

HostMoments::~HostMoments() {
  if (to_device_ == nullptr) return;  // moved from
  (void)to_device_->Synchronize();
  (void)to_host_->Synchronize();
}

float* HostMoments::HostAt(std::size_t state, int moment, std::int64_t first) const {
  return reinterpret_cast<float*>(memory_[state].data()) + moment * elems_[state] + first;
}

void HostMoments::ForBlocks(Queue& compute, std::size_t state, std::int64_t begin,
                            std::int64_t elems, const Update& update) {
  for (std::int64_t first = begin; first < begin + elems; first += block_elems_) {
    const std::int64_t count = std::min(block_elems_, begin + elems - first);
    Slot& slot = slots_[next_slot_++ % kSlots];
    std::vector<Tensor> block;
    to_device_->Wait(before_[state]);
    to_device_->Wait(slot.free);
    for (int moment = 0; moment < moments_; ++moment) {
      float* const at = reinterpret_cast<float*>(slot.memory.data()) + moment * slot_elems_;
      block.emplace_back(at, DType::kFloat32, std::initializer_list<std::int64_t>{count});
      device_->CopyFromHost(*to_device_, HostAt(state, moment, first), block.back());
    }
    compute.Wait(to_device_->Record());
    update(first, count, block);
    to_host_->Wait(compute.Record());
    for (int moment = 0; moment < moments_; ++moment) {
      device_->CopyToHost(*to_host_, block[static_cast<std::size_t>(moment)],
                          HostAt(state, moment, first));
    }
    slot.free = last_[state] = to_host_->Record();
  }
}

Status HostMoments::AwaitAll() {
  CKPT_RETURN_IF_ERROR(to_device_->Synchronize());
  return to_host_->Synchronize();
}

std::span<float> HostMoments::values(std::size_t state, int moment) {
  return {HostAt(state, moment, 0), static_cast<std::size_t>(elems_[state])};
}

}  // namespace ckpt::trainer
