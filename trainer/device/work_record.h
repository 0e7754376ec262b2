// A record of what a device ran and when, for reports on where a step's time goes.
#ifndef CKPT_TRAINER_DEVICE_WORK_RECORD_H_
#define CKPT_TRAINER_DEVICE_WORK_RECORD_H_

#include <cstdint>
#include <string>
#include <vector>

#include "core/base/result.h"
#include "trainer/device/queue.h"

namespace ckpt::trainer {

// One kernel, copy or fill; on the CPU, a whole operation. Times are of one clock, in nanoseconds.
struct DeviceWork {
  static constexpr std::int64_t kNoOperation = -1;
  static constexpr std::int64_t kNoQueue = -1;  // not known

  std::string name;  // a kernel's, as it is in the program; empty: a whole operation
  std::int64_t begin_ns = 0;
  std::int64_t end_ns = 0;
  std::int64_t operation = kNoOperation;  // the number of the operation that it belongs to
  // The device's number of its queue, whose work is done one after the other.
  std::int64_t queue = kNoQueue;
};

// Begins with its creation (Device::RecordWork). Recording makes the work somewhat slower.
//
// Thread-safety: the rank's thread.
class WorkRecord {
 public:
  virtual ~WorkRecord() = default;
  // What this thread puts on `queue` from here to EndOperation belongs to operation `number`, 0 or
  // more. Operations do not contain others.
  virtual void BeginOperation(Queue& queue, std::int64_t number) = 0;
  virtual void EndOperation(Queue& queue) = 0;
  // All work that ended since the record began, in no order. Synchronise the queues before. Call it
  // once. Errors: kSystem.
  virtual Result<std::vector<DeviceWork>> Finish() = 0;
};

}  // namespace ckpt::trainer

#endif  // CKPT_TRAINER_DEVICE_WORK_RECORD_H_
