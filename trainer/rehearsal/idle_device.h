// A device that counts memory and has none, for a rehearsal.
#ifndef CKPT_TRAINER_REHEARSAL_IDLE_DEVICE_H_
#define CKPT_TRAINER_REHEARSAL_IDLE_DEVICE_H_

#include <memory>

#include "trainer/device/device.h"

namespace ckpt::trainer {

// Its memory is addresses, of which the system backs those that are touched. Queues are done at once. What is copied to the
// device is dropped; what is copied from it was written there by the host.
[[nodiscard]] std::unique_ptr<Device> MakeIdleDevice();

}  // namespace ckpt::trainer

#endif  // CKPT_TRAINER_REHEARSAL_IDLE_DEVICE_H_
