// WorkRecord of the CPU: when its queues ran operations.
#ifndef CKPT_TRAINER_DEVICE_CPU_INTERNAL_HOST_RECORD_H_
#define CKPT_TRAINER_DEVICE_CPU_INTERNAL_HOST_RECORD_H_

#include <memory>

#include "trainer/device/work_record.h"

namespace ckpt::trainer {

// It has one entry for each operation, on any host queue. Copies, collectives and the host's own
// work are in none.
[[nodiscard]] std::unique_ptr<WorkRecord> StartHostRecord();

}  // namespace ckpt::trainer

#endif  // CKPT_TRAINER_DEVICE_CPU_INTERNAL_HOST_RECORD_H_
