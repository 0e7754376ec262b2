// Operations of mixtures of experts. The GPU has none of them yet: a queue that is given one fails.
#include "trainer/ops/cuda/cuda_ops_impl.h"

namespace ckpt::trainer {
namespace {

void FailAsAbsent(Queue& queue) {
  queue.Fail(Error(ErrorKind::kUnsupported, "the GPU computes no mixture of experts yet")
                 .Hint("train this model on the CPU"));
}

}  // namespace

void CudaOps::GroupedForward(Queue& queue, const Tensor&, const Tensor&, const Tensor&,
                             std::int64_t, const Tensor&) {
  FailAsAbsent(queue);
}
void CudaOps::GroupedBackwardData(Queue& queue, const Tensor&, const Tensor&, const Tensor&,
                                  std::int64_t, const Tensor&) {
  FailAsAbsent(queue);
}
void CudaOps::GroupedBackwardWeights(Queue& queue, const Tensor&, const Tensor&, const Tensor&,
                                     std::int64_t, const Gradient&) {
  FailAsAbsent(queue);
}
void CudaOps::Router(Queue& queue, const RouterForm&, const Tensor&, const Tensor&, const Tensor&,
                     const Tensor&, const Tensor&, const Tensor&) {
  FailAsAbsent(queue);
}
void CudaOps::RouterBackward(Queue& queue, const RouterForm&, const Tensor&, const Tensor&,
                             const Tensor&, const Tensor&) {
  FailAsAbsent(queue);
}
void CudaOps::RouterAuxLoss(Queue& queue, const RouterForm&, const AuxLossForm&, const Tensor&,
                            const Tensor&, const Tensor&, double, const Tensor&, const Tensor&) {
  FailAsAbsent(queue);
}
void CudaOps::CountRows(Queue& queue, const Tensor&, std::int64_t, const Tensor&) {
  FailAsAbsent(queue);
}
void CudaOps::UpdateExpertBias(Queue& queue, const Tensor&, double, const Tensor&, const Tensor&) {
  FailAsAbsent(queue);
}
void CudaOps::SortByExpert(Queue& queue, const SortForm&, const Tensor&, const Tensor&,
                           const ExpertRows&, const Tensor&, const Tensor&) {
  FailAsAbsent(queue);
}
void CudaOps::Permute(Queue& queue, const ExpertRows&, const Tensor&, const Tensor&, const Tensor&,
                      const Tensor&) {
  FailAsAbsent(queue);
}
void CudaOps::Unpermute(Queue& queue, const ExpertRows&, const Tensor&, const Tensor&,
                        const Tensor&, const Tensor&) {
  FailAsAbsent(queue);
}
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
