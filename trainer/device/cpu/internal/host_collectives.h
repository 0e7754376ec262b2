// Collectives of the CPU: the calls of a HostGroup, run on host queues.
#ifndef CKPT_TRAINER_DEVICE_CPU_INTERNAL_HOST_COLLECTIVES_H_
#define CKPT_TRAINER_DEVICE_CPU_INTERNAL_HOST_COLLECTIVES_H_

#include <memory>

#include "trainer/device/collectives.h"

namespace ckpt::trainer {

std::unique_ptr<Collectives> MakeHostCollectives(std::unique_ptr<HostGroup> group);

}  // namespace ckpt::trainer

#endif  // CKPT_TRAINER_DEVICE_CPU_INTERNAL_HOST_COLLECTIVES_H_
