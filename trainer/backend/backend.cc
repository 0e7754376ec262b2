#include "trainer/backend/backend.h"

#include <algorithm>
#include <array>
#include <string_view>
#include <vector>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "trainer/device/cpu/host_device.h"
#include "trainer/ops/cpu/host_ops.h"

namespace ckpt::trainer {
namespace {

Result<Backend> MakeCpu(const BackendOptions& options, HostGroup& /*world*/) {
  const QueueMode queues = options.overlaps ? QueueMode::kThreads : QueueMode::kInline;
  return Backend{
      .device = MakeHostDevice({.queues = queues}),
      .ops = MakeHostOps({.threads = options.threads, .fixed_order = options.fixed_order})};
}

struct NamedBackend {
  std::string_view name;
  Result<Backend> (*make)(const BackendOptions& options, HostGroup& world);
};

// One line for each backend.
constexpr std::array kBackends = {NamedBackend{.name = "cpu", .make = &MakeCpu}};

}  // namespace

Result<Backend> MakeBackend(const BackendOptions& options, HostGroup& world) {
  const auto* const found = std::ranges::find(kBackends, options.name, &NamedBackend::name);
  if (found != kBackends.end()) return found->make(options, world);
  std::vector<std::string_view> names;
  for (const NamedBackend& backend : kBackends) names.push_back(backend.name);
  return Error(ErrorKind::kUsage, "there is no such backend")
      .Expected(fmt::format("{}", fmt::join(names, ", ")))
      .Actual(options.name);
}

}  // namespace ckpt::trainer
