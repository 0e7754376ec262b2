// A record of what a device ran and when, for reports on where a step's time goes.
#ifndef CKPT_TRAINER_DEVICE_WORK_RECORD_H_
#define CKPT_TRAINER_DEVICE_WORK_RECORD_H_

#include <cstdint>
#include <string>
#include <vector>

#include "core/base/result.h"

namespace ckpt::trainer {

// One kernel, copy or fill. Times are of one clock, in nanoseconds.
struct DeviceWork {
  std::string name;  // a kernel's, as it is in the program
  std::int64_t begin_ns = 0;
  std::int64_t end_ns = 0;
};

// Begins with its creation (Device::RecordWork). Recording makes the work somewhat slower.
class WorkRecord {
 public:
  virtual ~WorkRecord() = default;
  // All work that ended since the record began, in no order. Synchronise the queues before. Call it
  // once. Errors: kSystem.
  virtual Result<std::vector<DeviceWork>> Finish() = 0;
};

}  // namespace ckpt::trainer

#endif  // CKPT_TRAINER_DEVICE_WORK_RECORD_H_
