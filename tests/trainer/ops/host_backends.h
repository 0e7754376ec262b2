// The CPU's Ops as conformance suites run them: each way to share, queue and order the work.
#ifndef CKPT_TESTS_TRAINER_OPS_HOST_BACKENDS_H_
#define CKPT_TESTS_TRAINER_OPS_HOST_BACKENDS_H_

#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "tests/conformance/ops_fixture.h"
#include "trainer/device/cpu/host_device.h"
#include "trainer/ops/cpu/host_ops.h"

namespace ckpt::trainer {

inline std::vector<OpsBackend> HostBackends() {
  const auto backend = [](const char* name, const HostDeviceOptions& device,
                          const HostOpsOptions& ops) {
    return OpsBackend{name, [device] { return MakeHostDevice(device); },
                      [ops] { return MakeHostOps(ops); },
                      [ops](int threads) {
                        HostOpsOptions shared = ops;
                        shared.threads = threads;
                        return MakeHostOps(shared);
                      }};
  };
  return {backend("OneThread", {}, {.threads = 1}), backend("ThreeThreads", {}, {.threads = 3}),
          backend("FixedOrder", {}, {.threads = 2, .fixed_order = true}),
          backend("ThreadQueue", {.queues = QueueMode::kThreads}, {.threads = 2})};
}

inline std::string BackendName(const ::testing::TestParamInfo<OpsBackend>& test) {
  return test.param.name;
}

}  // namespace ckpt::trainer

#endif  // CKPT_TESTS_TRAINER_OPS_HOST_BACKENDS_H_
