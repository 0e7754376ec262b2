#include "trainer/backend/backend.h"

#include <algorithm>
#include <array>
#include <string_view>
#include <vector>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "trainer/backend/internal/cuda_backend.h"
#include "trainer/device/cpu/host_device.h"
#include "trainer/ops/cpu/host_ops.h"

namespace ckpt::trainer {
namespace {

Status AlwaysRuns(const BackendOptions& /*options*/) { return OkStatus(); }

Result<Backend> MakeCpu(const BackendOptions& options, HostGroup& /*world*/) {
  const QueueMode queues = options.overlaps ? QueueMode::kThreads : QueueMode::kInline;
  return Backend{
      .device = MakeHostDevice({.queues = queues}),
      .ops = MakeHostOps({.threads = options.threads, .fixed_order = options.fixed_order})};
}

struct NamedBackend {
  std::string_view name;
  // OK, or why it cannot run here as the options ask.
  Status (*can_run)(const BackendOptions& options);
  Result<Backend> (*make)(const BackendOptions& options, HostGroup& world);
};

// One line for each backend.
constexpr std::array kBackends = {
    NamedBackend{.name = "cuda", .can_run = &CanRunCuda, .make = &MakeCuda},
    NamedBackend{.name = "cpu", .can_run = &AlwaysRuns, .make = &MakeCpu}};

}  // namespace

std::vector<std::string_view> BackendNames() {
  std::vector<std::string_view> names;
  for (const NamedBackend& backend : kBackends) names.push_back(backend.name);
  return names;
}

Result<Backend> MakeBackend(const BackendOptions& options, HostGroup& world) {
  for (const NamedBackend& backend : kBackends) {
    if (options.name != kAnyBackend && options.name != backend.name) continue;
    Status runs = backend.can_run(options);
    if (runs.ok()) return backend.make(options, world);
    if (options.name == backend.name) return runs;
  }
  return Error(ErrorKind::kUsage, "there is no such backend")
      .Expected(fmt::format("{} or {}", kAnyBackend, fmt::join(BackendNames(), ", ")))
      .Actual(options.name);
}

}  // namespace ckpt::trainer
