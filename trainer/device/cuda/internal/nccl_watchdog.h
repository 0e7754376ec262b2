// NcclWatchdog: ends a run when one of NCCL's calls fails or does not end.
#ifndef CKPT_TRAINER_DEVICE_CUDA_INTERNAL_NCCL_WATCHDOG_H_
#define CKPT_TRAINER_DEVICE_CUDA_INTERNAL_NCCL_WATCHDOG_H_

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <string_view>
#include <vector>

#include <cuda_runtime_api.h>

#include "core/base/mutex.h"
#include "core/base/status.h"
#include "trainer/comm/call_track.h"
#include "trainer/comm/host_group.h"
#include "trainer/comm/periodic_thread.h"
#include "trainer/device/cuda/cuda_queue.h"
#include "trainer/device/cuda/internal/nccl_library.h"

namespace ckpt::trainer {

// A kernel of NCCL waits for the other ranks without an end, and the host behind it. So a thread
// looks at what is under way, and notes on a communicator's track what has ended: a call that does
// not end in time ends the run (HostGroup::MakeTrack). If NCCL reports a failure, the group is
// aborted, which ends all ranks.
//
// Thread-safety: the rank's thread.
class NcclWatchdog {
 public:
  // For the GPU that is current when this is called.
  NcclWatchdog();
  ~NcclWatchdog() = default;
  NcclWatchdog(const NcclWatchdog&) = delete;
  NcclWatchdog& operator=(const NcclWatchdog&) = delete;

  // `group` lives until Remove. `track`: one of the group's, where the communicator's calls go.
  void Add(const NcclLibrary& nccl, ncclComm_t communicator, HostGroup& group,
           std::shared_ptr<CallTrack> track) CKPT_EXCLUDES(mutex_);
  // The last call that was enqueued on `stream` is one of NCCL; `call` is a literal. Errors:
  // kSystem (CUDA failed: the call is not watched).
  Status Watch(ncclComm_t communicator, std::string_view call, std::uint64_t size_bytes,
               cudaStream_t stream) CKPT_EXCLUDES(mutex_);
  // Nothing of the communicator is used any more. Waits while its group is being aborted.
  void Remove(ncclComm_t communicator) CKPT_EXCLUDES(mutex_);

 private:
  struct Watched {
    const NcclLibrary* nccl = nullptr;
    HostGroup* group = nullptr;
    std::shared_ptr<CallTrack> track;
    std::deque<cudaEvent_t> ends = {};  // of the calls that are under way on `track`
    bool is_aborting = false;           // `group` is in use: Remove waits
  };
  struct Failure {
    ncclComm_t communicator = nullptr;
    HostGroup* group = nullptr;
    Status why;
  };

  // Looks at every communicator, and aborts the groups of those that failed.
  void LookAtAll() CKPT_EXCLUDES(mutex_);
  // Their groups stay until EndAbort.
  [[nodiscard]] std::vector<Failure> TakeFailures() CKPT_EXCLUDES(mutex_);
  void EndAbort(ncclComm_t communicator) CKPT_EXCLUDES(mutex_);
  // Takes what has ended from the track. OK, or why NCCL failed.
  Status Look(ncclComm_t communicator, Watched& watched) CKPT_REQUIRES(mutex_);

  const int gpu_;
  CudaEventPool events_;
  Mutex mutex_;
  std::condition_variable abort_ended_;
  std::map<ncclComm_t, Watched> watched_ CKPT_GUARDED_BY(mutex_);
  PeriodicThread looks_;  // last, so that it ends before what it uses
};

}  // namespace ckpt::trainer

#endif  // CKPT_TRAINER_DEVICE_CUDA_INTERNAL_NCCL_WATCHDOG_H_
