#include "trainer/device/cuda/internal/nccl_watchdog.h"

#include <chrono>
#include <string>
#include <utility>

namespace ckpt::trainer {
namespace {

constexpr std::chrono::milliseconds kPeriod{100};

}  // namespace

NcclWatchdog::NcclWatchdog() {
  (void)cudaGetDevice(&gpu_);
  thread_ = std::jthread([this](std::stop_token stop) { Run(std::move(stop)); });
}

NcclWatchdog::~NcclWatchdog() = default;

void NcclWatchdog::Add(const NcclLibrary& nccl, ncclComm_t communicator, HostGroup& group,
                       std::shared_ptr<CallTrack> track) {
  const MutexLock lock(mutex_);
  watched_[communicator] = {.nccl = &nccl, .group = &group, .track = std::move(track)};
}

void NcclWatchdog::Watch(ncclComm_t communicator, std::string_view call, std::uint64_t size_bytes,
                         cudaStream_t stream) {
  cudaEvent_t const end = events_.Take();
  if (end == nullptr || cudaEventRecord(end, stream) != cudaSuccess) return;
  const MutexLock lock(mutex_);
  Watched& watched = watched_.at(communicator);
  watched.track->Begin(call, size_bytes);
  watched.ends.push_back(end);
}

void NcclWatchdog::Remove(ncclComm_t communicator) {
  const MutexLock lock(mutex_);
  const Watched& watched = watched_.at(communicator);
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

void NcclWatchdog::Run(std::stop_token stop) {
  (void)cudaSetDevice(gpu_);
  while (!stop.stop_requested()) {
    std::this_thread::sleep_for(kPeriod);
    const MutexLock lock(mutex_);
    for (auto& [communicator, watched] : watched_) {
      // Where ranks are threads, it goes on: calls that end are taken from their tracks.
      if (const Status why = Look(communicator, watched); !why.ok()) watched.group->Abort(why);
    }
  }
}

}  // namespace ckpt::trainer
