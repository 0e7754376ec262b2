#include "trainer/ops/cpu/host_ops.h"

#include "trainer/ops/cpu/internal/host_ops_impl.h"

namespace ckpt::trainer {

HostOps::HostOps(const HostOpsOptions& options)
    : fixed_order_(options.fixed_order), parallel_(options.threads) {}

std::unique_ptr<Ops> MakeHostOps(const HostOpsOptions& options) {
  return std::make_unique<HostOps>(options);
}

}  // namespace ckpt::trainer
