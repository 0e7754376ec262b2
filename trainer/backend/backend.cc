#include "trainer/backend/backend.h"

#include <algorithm>
#include <array>
#include <string_view>
#include <vector>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "core/base/check.h"
#include "trainer/backend/internal/cuda_backend.h"
#include "trainer/device/cpu/host_device.h"
#include "trainer/ops/cpu/host_ops.h"

namespace ckpt::trainer {
namespace {

Status CanRunCpu(const BackendOptions& options) {
  if (options.gpu_collectives != GpuCollectives::kAuto) {
    return Error(ErrorKind::kUnsupported, "gpu_collectives does nothing on the CPU")
        .Hint("leave gpu_collectives out, or take --device cuda");
  }
  if (!options.product_algorithms.empty() || options.product_trial != nullptr) {
    return Error(ErrorKind::kUnsupported, "the CPU's products have one algorithm")
        .Expected("a GPU, or no product_algorithms and no --time-products");
  }
  return OkStatus();
}

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
  bool adds_in_fixed_order = false;  // by itself
};

// One line for each backend.
constexpr std::array kBackends = {
    NamedBackend{.name = "cuda", .can_run = &CanRunCuda, .make = &MakeCuda},
    NamedBackend{.name = kReferenceBackend,
                 .can_run = &CanRunCpu,
                 .make = &MakeCpu,
                 .adds_in_fixed_order = true}};

}  // namespace

std::vector<std::string_view> BackendNames() {
  std::vector<std::string_view> names;
  for (const NamedBackend& backend : kBackends) names.push_back(backend.name);
  return names;
}

bool AddsInFixedOrder(std::string_view name) {
  const auto* const backend = std::ranges::find(kBackends, name, &NamedBackend::name);
  CKPT_CHECK(backend != kBackends.end());
  return backend->adds_in_fixed_order;
}

std::string BackendChoice::Text() const {
  return passed_over.empty() ? name : fmt::format("{} ({})", name, passed_over);
}

Result<BackendChoice> ChooseBackend(const BackendOptions& options) {
  BackendChoice choice;
  for (const NamedBackend& backend : kBackends) {
    if (options.name != kAnyBackend && options.name != backend.name) continue;
    Status runs = backend.can_run(options);
    if (!runs.ok() && options.name == backend.name) return runs;
    if (runs.ok()) {
      choice.name = backend.name;
      return choice;
    }
    if (!choice.passed_over.empty()) choice.passed_over += "; ";
    choice.passed_over += fmt::format("{}: {}", backend.name, runs.first().message);
  }
  if (options.name == kAnyBackend) {
    return Error(ErrorKind::kUnsupported, "nothing here computes as the settings ask")
        .Actual(choice.passed_over);
  }
  return Error(ErrorKind::kUsage, "there is no such backend")
      .Expected(fmt::format("{} or {}", kAnyBackend, fmt::join(BackendNames(), ", ")))
      .Actual(options.name);
}

Result<Backend> MakeBackend(const BackendOptions& options, HostGroup& world) {
  CKPT_ASSIGN_OR_RETURN(const BackendChoice choice, ChooseBackend(options));
  const auto* const backend = std::ranges::find(kBackends, choice.name, &NamedBackend::name);
  return backend->make(options, world);
}

}  // namespace ckpt::trainer
