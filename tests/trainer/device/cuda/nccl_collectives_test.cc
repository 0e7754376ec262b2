// The conformance suite on GPU ranks that are processes, by NCCL. NCCL takes two ranks for one GPU
// only where each says that it is on another host, as here. With `missing-rank`: a rank that stops.
// With `async-error`: NCCL reports a failure of a call that it has taken. With `missing-thread` and
// `failing-thread`: ranks that are threads of one process, of which one stops or fails.
#include "trainer/device/cuda/internal/nccl_collectives.h"

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/conformance/collectives_suite.h"
#include "trainer/comm/mpi_comm.h"
#include "trainer/comm/thread_comm.h"
#include "trainer/device/cuda/cuda_device.h"
#include "trainer/device/cuda/internal/nccl_library.h"
#include "trainer/device/cuda/internal/nccl_watchdog.h"

namespace ckpt::trainer {
namespace {

HostGroup* mpi_world = nullptr;

INSTANTIATE_TEST_SUITE_P(Nccl, CollectivesSuite,
                         ::testing::Values(WorldCase{
                             .name = "Processes",
                             .why_skipped = NumCudaDevices() == 0 ? "no GPU" : "",
                             .make_device =
                                 [](int rank) { return MakeCudaDevice(rank % NumCudaDevices()); },
                             .run = [](const auto& body) { return body(*mpi_world); }}),
                         WorldCaseName);

void ShareGpus(HostGroup& world) {
  const std::string host = "rank" + std::to_string(world.rank());
  if (NumCudaDevices() < world.size()) ::setenv("NCCL_HOSTID", host.c_str(), 1);
}

int RunSuite() {
  int failures = 1;
  const Status status = RunMpiRank({}, [&](HostGroup& world) {
    mpi_world = &world;
    ShareGpus(world);
    failures = RUN_ALL_TESTS();
    return OkStatus();
  });
  std::fputs(status.ToString().c_str(), stderr);
  return status.ok() ? failures : 1;
}

std::atomic<bool> reports_failure = false;

using RankBody = std::function<Status(HostGroup& world)>;
using RankStep = std::function<Status()>;

// A rank of two calls, the last of which does `instead` of the second.
RankBody TwoCalls(bool is_reported, const RankStep& instead) {
  return [=](HostGroup& world) -> Status {
    CKPT_ASSIGN_OR_RETURN(const std::unique_ptr<Device> device,
                          MakeCudaDevice(world.rank() % NumCudaDevices()));
    const std::unique_ptr<Queue> queue = device->MakeQueue("comm");
    CKPT_ASSIGN_OR_RETURN(const NcclLibrary* const loaded, LoadNccl());
    NcclLibrary nccl = *loaded;
    if (is_reported && world.rank() == 0) {
      nccl.async_error = [](ncclComm_t, ncclResult_t* code) {
        *code = reports_failure ? ncclRemoteError : ncclSuccess;
        return ncclSuccess;
      };
    }
    NcclWatchdog watchdog;
    CKPT_ASSIGN_OR_RETURN(std::unique_ptr<HostGroup> group, world.Split(0, world.rank()));
    CKPT_ASSIGN_OR_RETURN(const std::unique_ptr<Collectives> all,
                          MakeNcclCollectives(nccl, std::move(group), *device, watchdog));
    const std::int64_t part = 1000 / world.size();
    const DeviceArray<float> data(
        *device, *queue, std::vector<float>(static_cast<std::size_t>(part * world.size())));
    for (int call = 0; call < 2; ++call) {
      if (call == 1 && world.rank() + 1 == world.size()) CKPT_RETURN_IF_ERROR(instead());
      all->AllGather(*queue, data.tensor().Rows(world.rank() * part, part), data.tensor());
      reports_failure = call == 1;
      CKPT_RETURN_IF_ERROR(queue->Synchronize());
    }
    return OkStatus();
  };
}

// The others must end, and all processes with them: because a rank is missing or gave up, or
// because NCCL reports a failure to the first rank.
Status RunToTheEnd(std::string_view fault) {
  const std::chrono::seconds timeout(fault.starts_with("missing") ? 3 : 600);
  const RankStep stop = [] {
    std::this_thread::sleep_for(std::chrono::minutes(1));
    return OkStatus();
  };
  const RankStep fail = [] { return Error(ErrorKind::kSystem, "the GPU is lost"); };
  if (fault.ends_with("thread")) {
    return RunRanks(2, TwoCalls(false, fault == "missing-thread" ? stop : fail), timeout);
  }
  return RunMpiRank({.timeout = timeout}, [&](HostGroup& world) {
    ShareGpus(world);
    return TwoCalls(fault == "async-error", stop)(world);
  });
}

}  // namespace
}  // namespace ckpt::trainer

int main(int argc, char** argv) {
  ::testing::InitGoogleMock(&argc, argv);
  const std::string_view fault = argc == 2 ? argv[1] : "";
  if (fault.empty()) return ckpt::trainer::RunSuite();
  if (ckpt::trainer::NumCudaDevices() < (fault.ends_with("thread") ? 2 : 1)) {
    std::puts("SKIPPED: no GPU for each rank");
    return 0;
  }
  return ckpt::trainer::RunToTheEnd(fault).ok() ? 0 : 1;
}
