// NcclWatchdog: ends a run of several processes when one of NCCL's calls fails or does not end.
#ifndef CKPT_TRAINER_DEVICE_CUDA_INTERNAL_NCCL_WATCHDOG_H_
#define CKPT_TRAINER_DEVICE_CUDA_INTERNAL_NCCL_WATCHDOG_H_

#include <chrono>
#include <cstdint>
#include <deque>
#include <map>
#include <string_view>
#include <thread>

#include <cuda_runtime_api.h>

#include "core/base/mutex.h"
#include "trainer/comm/host_group.h"
#include "trainer/device/cuda/cuda_queue.h"
#include "trainer/device/cuda/internal/nccl_library.h"

namespace ckpt::trainer {

// A kernel of NCCL waits for the other ranks without an end, and the host behind it. So a thread looks
// at what is under way. If NCCL reports a failure, or the first call of a communicator has not ended
// after `timeout`, the group is aborted, which ends all processes.
//
// Thread-safety: the rank's thread.
class NcclWatchdog {
 public:
  // For the GPU that is current when this is called.
  explicit NcclWatchdog(std::chrono::milliseconds timeout);
  ~NcclWatchdog();
  NcclWatchdog(const NcclWatchdog&) = delete;
  NcclWatchdog& operator=(const NcclWatchdog&) = delete;

  // `group` outlives the communicator.
  void Add(const NcclLibrary& nccl, ncclComm_t communicator, HostGroup& group)
      CKPT_EXCLUDES(mutex_);
  // The last call that was enqueued on `stream` is one of NCCL; `call` is a literal.
  void Watch(ncclComm_t communicator, std::string_view call, std::uint64_t size_bytes,
             cudaStream_t stream) CKPT_EXCLUDES(mutex_);
  void Remove(ncclComm_t communicator) CKPT_EXCLUDES(mutex_);

 private:
  using Clock = std::chrono::steady_clock;

  struct Call {
    std::string_view name;
    std::uint64_t number = 0;
    std::uint64_t size_bytes = 0;
    cudaEvent_t end = nullptr;
  };
  struct Watched {
    const NcclLibrary* nccl = nullptr;
    HostGroup* group = nullptr;
    std::uint64_t num_calls = 0;
    std::deque<Call> under_way = {};
    Clock::time_point first_since = {};  // since when `under_way.front()` is the first
  };

  void Run(std::stop_token stop) CKPT_EXCLUDES(mutex_);
  // OK, or why the run must end.
  Status Look(ncclComm_t communicator, Watched& watched) CKPT_REQUIRES(mutex_);

  const std::chrono::milliseconds timeout_;
  int gpu_ = 0;
  CudaEventPool events_;
  Mutex mutex_;
  std::map<ncclComm_t, Watched> watched_ CKPT_GUARDED_BY(mutex_);
  std::jthread thread_;  // last, so that it ends before the members that it uses
};

}  // namespace ckpt::trainer

#endif  // CKPT_TRAINER_DEVICE_CUDA_INTERNAL_NCCL_WATCHDOG_H_
