#include "trainer/device/cuda/internal/nccl_watchdog.h"

#include <chrono>
#include <string>
#include <utility>

#include "trainer/device/cuda/cuda_status.h"

namespace ckpt::trainer {
namespace {

constexpr std::chrono::milliseconds kPeriod{100};

int CurrentGpu() {
  int gpu = 0;
  (void)cudaGetDevice(&gpu);
  return gpu;
}

}  // namespace

NcclWatchdog::NcclWatchdog() : gpu_(CurrentGpu()), looks_(kPeriod, [this] { LookAtAll(); }) {}

void NcclWatchdog::Add(const NcclLibrary& nccl, ncclComm_t communicator, HostGroup& group,
                       std::shared_ptr<CallTrack> track) {
  const MutexLock lock(mutex_);
  watched_[communicator] = {.nccl = &nccl, .group = &group, .track = std::move(track)};
}

Status NcclWatchdog::Watch(ncclComm_t communicator, std::string_view call, std::uint64_t size_bytes,
                           cudaStream_t stream) {
  cudaEvent_t const end = events_.Take();
  if (end == nullptr) return CudaStatus(cudaErrorMemoryAllocation, "cudaEventCreateWithFlags");
  if (const cudaError_t code = cudaEventRecord(end, stream); code != cudaSuccess) {
    events_.Return(end);
    return CudaStatus(code, "cudaEventRecord");
  }
  const MutexLock lock(mutex_);
  Watched& watched = watched_.at(communicator);
  watched.track->Begin(call, size_bytes);
  watched.ends.push_back(end);
  return OkStatus();
}

void NcclWatchdog::Remove(ncclComm_t communicator) {
  MutexLock lock(mutex_);
  const Watched& watched = watched_.at(communicator);
  while (watched.is_aborting) lock.Wait(abort_ended_);
  for (cudaEvent_t const end : watched.ends) {
    events_.Return(end);
    watched.track->End();
  }
  watched_.erase(communicator);
}

Status NcclWatchdog::Look(ncclComm_t communicator, Watched& watched) {
  while (!watched.ends.empty()) {
    cudaEvent_t const end = watched.ends.front();
    if (cudaEventQuery(end) == cudaErrorNotReady) break;  // another failure is the queue's to tell
    events_.Return(end);
    watched.ends.pop_front();
    watched.track->End();
  }
  ncclResult_t code = ncclSuccess;
  const ncclResult_t asked = watched.nccl->async_error(communicator, &code);
  if (asked == ncclSuccess && (code == ncclSuccess || code == ncclInProgress)) return OkStatus();
  const auto first = watched.track->First();
  const std::string call = first ? watched.track->TextOf(first->call) : "NCCL";
  return watched.nccl->StatusOf(asked != ncclSuccess ? asked : code, call, communicator);
}

std::vector<NcclWatchdog::Failure> NcclWatchdog::TakeFailures() {
  const MutexLock lock(mutex_);
  std::vector<Failure> failures;
  for (auto& [communicator, watched] : watched_) {
    Status why = Look(communicator, watched);
    if (why.ok()) continue;
    watched.is_aborting = true;
    failures.push_back(
        {.communicator = communicator, .group = watched.group, .why = std::move(why)});
  }
  return failures;
}

void NcclWatchdog::EndAbort(ncclComm_t communicator) {
  const MutexLock lock(mutex_);
  watched_.at(communicator).is_aborting = false;
  abort_ended_.notify_all();
}

// An abort runs code of everything that waits in the group's world, so no lock is held over it.
// Where ranks are threads, looking goes on after it: calls that end are taken from their tracks.
void NcclWatchdog::LookAtAll() {
  (void)cudaSetDevice(gpu_);
  for (const Failure& failure : TakeFailures()) {
    failure.group->Abort(failure.why);
    EndAbort(failure.communicator);
  }
}

}  // namespace ckpt::trainer
