// Collectives of the CPU in which all ranks meet: the calls of a HostGroup, run on host queues.
#ifndef CKPT_TRAINER_DEVICE_CPU_INTERNAL_HOST_COLLECTIVES_H_
#define CKPT_TRAINER_DEVICE_CPU_INTERNAL_HOST_COLLECTIVES_H_

#include <memory>

#include "trainer/device/collectives.h"

namespace ckpt::trainer {

std::unique_ptr<Collectives> MakeHostCollectives(std::unique_ptr<HostGroup> group);

// Checks the counts of an AllToAll, which may not have been computed yet.
void CheckCounts(const Tensor& send_rows, const Tensor& receive_rows, int num_ranks);
// What an AllToAll moves of a tensor, when its counts were computed. `receive_rows` null: only what is
// sent.
RowExchange RowsOf(const RowTransfer& transfer, const Tensor& send_rows,
                   const Tensor& receive_rows);

}  // namespace ckpt::trainer

#endif  // CKPT_TRAINER_DEVICE_CPU_INTERNAL_HOST_COLLECTIVES_H_
