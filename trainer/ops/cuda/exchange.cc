// What expert parallelism needs. The GPU has none of it yet: a queue that is given it fails.
#include "trainer/ops/cuda/cuda_ops_impl.h"

namespace ckpt::trainer {
namespace {

void FailAsAbsent(Queue& queue) {
  queue.Fail(Error(ErrorKind::kUnsupported, "GPUs do not share experts yet")
                 .Hint("train with expert_model_parallel_size=1"));
}

}  // namespace

void CudaOps::PlanExchange(Queue& queue, std::int64_t, const Tensor&, const ExchangePlan&,
                           const Tensor&) {
  FailAsAbsent(queue);
}
void CudaOps::GatherRows(Queue& queue, const Tensor&, const Tensor&, const Tensor&, const Tensor&) {
  FailAsAbsent(queue);
}
void CudaOps::ScatterRows(Queue& queue, const Tensor&, const Tensor&, const Tensor&,
                          const Tensor&) {
  FailAsAbsent(queue);
}

}  // namespace ckpt::trainer
