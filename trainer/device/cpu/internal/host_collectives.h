// Collectives of the CPU in which all ranks meet: the calls of a HostGroup, run on host queues.
#ifndef CKPT_TRAINER_DEVICE_CPU_INTERNAL_HOST_COLLECTIVES_H_
#define CKPT_TRAINER_DEVICE_CPU_INTERNAL_HOST_COLLECTIVES_H_

#include <cstdint>
#include <memory>
#include <span>

#include "trainer/device/collectives.h"

namespace ckpt::trainer {

// `device`, of the CPU, outlives them.
std::unique_ptr<Collectives> MakeHostCollectives(std::unique_ptr<HostGroup> group, Device& device);

// What an AllToAll with these counts moves of a tensor. `receive_rows` empty: only what is sent.
RowExchange RowsOf(const RowTransfer& transfer, std::span<const std::int64_t> send_rows,
                   std::span<const std::int64_t> receive_rows);

}  // namespace ckpt::trainer

#endif  // CKPT_TRAINER_DEVICE_CPU_INTERNAL_HOST_COLLECTIVES_H_
