// The CPU's Ops: the reference for all other backends.
#ifndef CKPT_TRAINER_OPS_CPU_HOST_OPS_H_
#define CKPT_TRAINER_OPS_CPU_HOST_OPS_H_

#include <memory>

#include "trainer/ops/ops.h"

namespace ckpt::trainer {

struct HostOpsOptions {
  // Threads that share one call. Results do not depend on their number.
  int threads = 1;
  // Sums every result of matrix products and attention in one order that depends only on its own
  // row and column, not on the number of rows. So a token gets the same numbers in every batch.
  bool fixed_order = false;
};

// Runs on queues of a host device. Thread-safety: calls may come from different queues.
std::unique_ptr<Ops> MakeHostOps(const HostOpsOptions& options);

}  // namespace ckpt::trainer

#endif  // CKPT_TRAINER_OPS_CPU_HOST_OPS_H_
