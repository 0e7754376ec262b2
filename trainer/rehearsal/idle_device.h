// A device for a rehearsal: it counts memory but does not use any.
#ifndef CKPT_TRAINER_REHEARSAL_IDLE_DEVICE_H_
#define CKPT_TRAINER_REHEARSAL_IDLE_DEVICE_H_

#include <memory>

#include "trainer/device/device.h"

namespace ckpt::trainer {

// Its memory is only reserved addresses; the system backs a page when it is touched. Its queues are
// always done. It ignores copies to the device and
// collectives. A copy from it returns what the host wrote there.
[[nodiscard]] std::unique_ptr<Device> MakeIdleDevice();

}  // namespace ckpt::trainer

#endif  // CKPT_TRAINER_REHEARSAL_IDLE_DEVICE_H_
