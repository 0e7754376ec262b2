// The CPU's Ops: the reference that every other backend is compared with.
#ifndef CKPT_TRAINER_OPS_HOST_OPS_H_
#define CKPT_TRAINER_OPS_HOST_OPS_H_

#include <memory>

#include "trainer/ops/ops.h"

namespace ckpt::trainer {

struct HostOpsOptions {
  // Threads that share one call; results do not depend on it.
  int threads = 1;
  // Matrix products and attention whose every result is summed in one order that depends on nothing
  // but its own row and column (never on how many rows there are), so that a token's numbers are
  // the same in every batch.
  bool fixed_order = false;
};

// Runs on queues of a host device. Thread-safety: each call may come from another queue.
std::unique_ptr<Ops> MakeHostOps(const HostOpsOptions& options);

}  // namespace ckpt::trainer

#endif  // CKPT_TRAINER_OPS_HOST_OPS_H_
