// RowCounts: how many rows an AllToAll sends or receives, on the device and, where they are needed
// there, on the host.
#ifndef CKPT_TRAINER_DEVICE_ROW_COUNTS_H_
#define CKPT_TRAINER_DEVICE_ROW_COUNTS_H_

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "core/base/result.h"
#include "trainer/device/device.h"
#include "trainer/device/queue.h"
#include "trainer/device/tensor.h"

namespace ckpt::trainer {

// Made by Collectives::ReadCounts. Copies share what is on the host, and may outlive the
// collectives unused.
class RowCounts {
 public:
  explicit RowCounts(const Tensor& on_device) : on_device_(on_device) {}
  RowCounts() = default;

  // int64 [ranks].
  [[nodiscard]] const Tensor& on_device() const { return on_device_; }
  // One count a rank. Blocks the caller until they are copied. Errors: what failed before that.
  // REQUIRES: a CountsReader made this.
  [[nodiscard]] Result<std::span<const std::int64_t>> OnHost() const;

 private:
  friend class CountsReader;
  struct HostCopy;

  Tensor on_device_;
  std::shared_ptr<const HostCopy> on_host_;
};

// Copies counts to the host on a queue of its own. So the queue that computed them goes on, and the
// host waits for them alone, whatever was enqueued since.
//
// Thread-safety: the rank's thread.
class CountsReader {
 public:
  // `device` outlives it and the counts.
  CountsReader(Device& device, int num_ranks) : device_(device), num_ranks_(num_ranks) {}
  // No copy is under way afterwards.
  ~CountsReader();
  CountsReader(const CountsReader&) = delete;
  CountsReader& operator=(const CountsReader&) = delete;

  // `counts`, int64 [num_ranks], as they are when `queue` has run what was enqueued so far. They do
  // not change until RowCounts::OnHost has returned. If there is no memory, that call says so.
  RowCounts Read(Queue& queue, const Tensor& counts);

 private:
  // Memory on the host that nobody holds.
  std::shared_ptr<RowCounts::HostCopy> Take();

  Device& device_;
  const int num_ranks_;
  std::unique_ptr<Queue> queue_;  // made by the first Read
  std::vector<std::shared_ptr<RowCounts::HostCopy>> copies_;
};

}  // namespace ckpt::trainer

#endif  // CKPT_TRAINER_DEVICE_ROW_COUNTS_H_
