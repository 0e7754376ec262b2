// GroupedLinear: y = x·w[e]ᵀ, each row with the matrix of its expert.
#ifndef CKPT_TRAINER_MODEL_GROUPED_LINEAR_H_
#define CKPT_TRAINER_MODEL_GROUPED_LINEAR_H_

#include <cstdint>
#include <span>
#include <vector>

#include "trainer/model/block.h"
#include "trainer/model/dispatch.h"

namespace ckpt::trainer {

// Experts whose matrices [O, I] lie behind one another: all that a rank holds, since they are a
// stack (ParamSpec), unless some of them are frozen and some are not.
template <typename T>
struct ExpertRun {
  std::int64_t first = 0;  // expert
  T matrices;              // [n, O, I]
};

// In order of the experts; frozen ones have no gradient and are in no run of gradients.
[[nodiscard]] std::vector<ExpertRun<Tensor>> ListRuns(std::span<const Tensor> weights);
[[nodiscard]] std::vector<ExpertRun<Gradient>> ListRuns(std::span<const Gradient> gradients);

// x [R, I], a matrix [O, I] for each expert held here → y [R, O]. One product for each run.
void GroupedLinear(BlockContext& context, const Dispatch& dispatch, const Tensor& x,
                   std::span<const Tensor> weights, const Tensor& y);
// dx [R, I] = dy·w[e].
void GroupedLinearBackwardData(BlockContext& context, const Dispatch& dispatch, const Tensor& dy,
                               std::span<const Tensor> weights, const Tensor& dx);
// dweights[e] = dyᵀ·x over the rows of e; null ones are left out.
void GroupedLinearBackwardWeights(BlockContext& context, const Dispatch& dispatch, const Tensor& dy,
                                  const Tensor& x, std::span<const Gradient> dweights);

}  // namespace ckpt::trainer

#endif  // CKPT_TRAINER_MODEL_GROUPED_LINEAR_H_
