#include "trainer/device/cuda/internal/nccl_watchdog.h"

#include <string>

namespace ckpt::trainer {
namespace {

constexpr std::chrono::milliseconds kPeriod{100};

}  // namespace

NcclWatchdog::NcclWatchdog(std::chrono::milliseconds timeout) : timeout_(timeout) {
  (void)cudaGetDevice(&gpu_);
  thread_ = std::jthread([this](std::stop_token stop) { Run(std::move(stop)); });
}

NcclWatchdog::~NcclWatchdog() = default;

void NcclWatchdog::Add(const NcclLibrary& nccl, ncclComm_t communicator, HostGroup& group) {
  const MutexLock lock(mutex_);
  watched_[communicator] = {.nccl = &nccl, .group = &group};
}

void NcclWatchdog::Watch(ncclComm_t communicator, std::string_view call, std::uint64_t size_bytes,
                         cudaStream_t stream) {
  cudaEvent_t const end = events_.Take();
  if (end == nullptr || cudaEventRecord(end, stream) != cudaSuccess) return;
  const MutexLock lock(mutex_);
  Watched& watched = watched_.at(communicator);
  if (watched.under_way.empty()) watched.first_since = Clock::now();
  watched.under_way.push_back(
      {.name = call, .number = ++watched.num_calls, .size_bytes = size_bytes, .end = end});
}

void NcclWatchdog::Remove(ncclComm_t communicator) {
  const MutexLock lock(mutex_);
  for (const Call& call : watched_.at(communicator).under_way) events_.Return(call.end);
  watched_.erase(communicator);
}

Status NcclWatchdog::Look(ncclComm_t communicator, Watched& watched) {
  while (!watched.under_way.empty()) {
    cudaEvent_t const end = watched.under_way.front().end;
    if (cudaEventQuery(end) == cudaErrorNotReady) break;  // another failure is the queue's to tell
    events_.Return(end);
    watched.under_way.pop_front();
    watched.first_since = Clock::now();
  }
  ncclResult_t code = ncclSuccess;
  const ncclResult_t asked = watched.nccl->async_error(communicator, &code);
  if (asked == ncclSuccess && code == ncclInProgress) code = ncclSuccess;
  const bool has_failed = asked != ncclSuccess || code != ncclSuccess;
  const bool is_late = !watched.under_way.empty() && Clock::now() - watched.first_since > timeout_;
  if (!has_failed && !is_late) return OkStatus();
  std::string call = "NCCL";
  if (!watched.under_way.empty()) {
    const Call& first = watched.under_way.front();
    call = std::string(first.name) + " of " + std::to_string(first.size_bytes) + " bytes, call " +
           std::to_string(first.number) + " of rank " + std::to_string(watched.group->rank()) +
           " in a group of " + std::to_string(watched.group->size());
  }
  if (has_failed)
    return watched.nccl->StatusOf(asked != ncclSuccess ? asked : code, call, communicator);
  return Error(ErrorKind::kSystem, "ranks wait for one that is missing")
      .Expected(call + " to end within " +
                std::to_string(std::chrono::duration_cast<std::chrono::seconds>(timeout_).count()) +
                " s")
      .Hint("the rank that prints no such error has stopped: see what its process does");
}

void NcclWatchdog::Run(std::stop_token stop) {
  (void)cudaSetDevice(gpu_);
  while (!stop.stop_requested()) {
    std::this_thread::sleep_for(kPeriod);
    Status why;
    HostGroup* group = nullptr;
    {
      const MutexLock lock(mutex_);
      for (auto& [communicator, watched] : watched_) {
        why = Look(communicator, watched);
        group = watched.group;
        if (!why.ok()) break;
      }
    }
    if (!why.ok()) return group->Abort(why);
  }
}

}  // namespace ckpt::trainer
