// The two kinds of host queue.
#ifndef CKPT_TRAINER_DEVICE_CPU_INTERNAL_HOST_QUEUES_H_
#define CKPT_TRAINER_DEVICE_CPU_INTERNAL_HOST_QUEUES_H_

#include <cstdint>
#include <memory>
#include <string_view>

#include "trainer/device/cpu/host_device.h"

namespace ckpt::trainer {

std::unique_ptr<HostQueue> MakeInlineQueue();

// `delay_seed`: seed of the random delays before work; 0: no delays.
std::unique_ptr<HostQueue> MakeThreadQueue(std::string_view name, std::uint64_t delay_seed);

// Blocks until `event`, of any host queue, is reached. Returns the failure of its queue up to it.
Status AwaitHostEvent(const Event& event);

}  // namespace ckpt::trainer

#endif  // CKPT_TRAINER_DEVICE_CPU_INTERNAL_HOST_QUEUES_H_
