// GroupedLinear: y = x·w[e]ᵀ, where each row uses the matrix of its expert.
#ifndef CKPT_TRAINER_MODEL_INTERNAL_GROUPED_LINEAR_H_
#define CKPT_TRAINER_MODEL_INTERNAL_GROUPED_LINEAR_H_

#include <cstdint>
#include <span>
#include <vector>

#include "trainer/model/block.h"
#include "trainer/model/dispatch.h"

namespace ckpt::trainer {

// Consecutive experts whose matrices [O, I] are contiguous. A rank's experts form one run, since
// their matrices are a stack (ParamSpec), unless only some of them are frozen.
template <typename T>
struct ExpertRun {
  std::int64_t first = 0;  // expert
  T matrices;              // [n, O, I]
};

// In order of the experts. Frozen ones have no gradient, so runs of gradients do not contain them.
[[nodiscard]] std::vector<ExpertRun<Tensor>> ListRuns(std::span<const Tensor> weights);
[[nodiscard]] std::vector<ExpertRun<Gradient>> ListRuns(std::span<const Gradient> gradients);

// x [R, I], and a matrix [O, I] for each expert held here → y [R, O]. One product per run.
void GroupedLinear(BlockContext& context, const Dispatch& dispatch, const Tensor& x,
                   std::span<const Tensor> weights, const Tensor& y);
// dx [R, I] = dy·w[e].
void GroupedLinearBackwardData(BlockContext& context, const Dispatch& dispatch, const Tensor& dy,
                               std::span<const Tensor> weights, const Tensor& dx);
// dweights[e] = dyᵀ·x over the rows of expert e; null ones are skipped.
void GroupedLinearBackwardWeights(BlockContext& context, const Dispatch& dispatch, const Tensor& dy,
                                  const Tensor& x, std::span<const Gradient> dweights);

}  // namespace ckpt::trainer

#endif  // CKPT_TRAINER_MODEL_INTERNAL_GROUPED_LINEAR_H_
