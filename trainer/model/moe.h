// Mixture of experts: router, dispatch to the ranks that hold the experts, experts, combination of
// their results, shared experts.
#ifndef CKPT_TRAINER_MODEL_MOE_H_
#define CKPT_TRAINER_MODEL_MOE_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "trainer/device/collectives.h"
#include "trainer/model/block.h"
#include "trainer/model/dispatch.h"
#include "trainer/model/model_config.h"
#include "trainer/params/param_spec.h"

namespace ckpt::trainer {

class SharedExperts;

struct MoeRuntime {
  // The ranks that divide the experts; rank e of P holds experts [e·E/P, (e+1)·E/P). Null: this
  // rank holds all.
  Collectives* expert_group = nullptr;
  Dispatcher dispatcher = Dispatcher::kAllToAll;
  std::optional<double> rank_capacity_factor = {};  // see DispatchSpec
  // Adds up gradients of expert weights one source rank at a time, so that with fixed-point
  // gradients their sum does not depend on the mesh. Not with kAllGather.
  bool separate_sources = false;
  // int32 [T, K]: the experts of the tokens of every micro-batch, whose router only weighs them. A
  // micro-batch may have fewer tokens, and no padding. Null: the router chooses.
  Tensor assigned_experts = {};
  // Every Forward adds to `overflows`, a Forward that counts to `dropped`. Memory of the caller.
  DispatchCounts counts = {};

  [[nodiscard]] int rank() const { return expert_group == nullptr ? 0 : expert_group->rank(); }
  [[nodiscard]] int ranks() const { return expert_group == nullptr ? 1 : expert_group->size(); }
};

// Rank `rank` of the `ranks` that divide the experts.
struct ExpertPlace {
  int rank = 0;
  int ranks = 1;
};

// The parameters of a MoeBlock at this place: router.weight, the shared experts' weights, then
// linear_fc1 of every expert held here, then linear_fc2 of each.
[[nodiscard]] std::vector<ParamSpec> MoeParams(const ModelConfig& config, const std::string& prefix,
                                               ExpertPlace place);

// y = Σ over the chosen experts of weight · expert(x), plus the shared experts. The weight is
// applied before an expert's second product, so Forward need not keep the product's result.
//
// Forward keeps what Backward needs until the next Forward. Thread-safety: the rank's thread.
class MoeBlock {
 public:
  // `prefix`: "decoder.layers.3.mlp.". `expert_bias` [E] of the statistics' dtype and
  // `expert_counts` int64 [E] are device memory of the caller. If null, there is no bias or choices
  // are not counted.
  MoeBlock(const ModelConfig& config, std::string prefix, const MoeRuntime& runtime,
           Tensor expert_bias, Tensor expert_counts);

  ~MoeBlock();
  MoeBlock(MoeBlock&&) noexcept;

  [[nodiscard]] std::vector<ParamSpec> Params() const {
    return MoeParams(config_, prefix_, {runtime_.rank(), runtime_.ranks()});
  }

  // Allocates in the arena what the next routing keeps until Backward. Memory allocated after it
  // may be taken back between Forward and Recompute.
  void PlanRouting(BlockContext& context);
  // y = moe(x), both [T, H]. Do not change `x` before Backward. aux_loss [1] += the auxiliary
  // losses, and the rows of the experts held here are counted, from all ranks. As in Megatron's
  // `routing_map.sum`, dropped rows are not counted but padding up to the capacity is. If aux_loss
  // is null, neither happens, as in an evaluation.
  //
  // Padding tokens are not routed: they take no place of an expert's capacity, and their rows of y
  // contain only the shared experts.
  void Forward(BlockContext& context, std::span<const Tensor> weights, const Tensor& x,
               const Tensor& y, const Tensor& aux_loss);
  // Computes again what Backward needs, with the routing of the last Forward, which had the same x.
  // y = moe(x), too; null: not wanted.
  void Recompute(BlockContext& context, std::span<const Tensor> weights, const Tensor& x,
                 const Tensor& y);
  // dx [T, H] is overwritten. `aux_scale` multiplies the gradient of the auxiliary losses.
  void Backward(BlockContext& context, std::span<const Tensor> weights,
                std::span<const Gradient> gradients, const Tensor& dy, double aux_scale,
                const Tensor& dx);

 private:
  template <typename T>
  struct Parts {
    T router;
    std::span<const T> shared, fc1, fc2;
  };
  template <typename T>
  [[nodiscard]] Parts<T> Unpack(std::span<const T> params) const;
  [[nodiscard]] bool has_aux_loss() const;
  [[nodiscard]] AuxLossForm Aux(const BlockContext& context) const;
  [[nodiscard]] DispatchSpec Spec() const;
  void RouteForward(BlockContext& context, const Tensor& router, const Tensor& x,
                    const Tensor& aux_loss);
  // If y is null, only what Backward needs is computed.
  void Compute(BlockContext& context, const Parts<Tensor>& weights, const Tensor& x,
               const Tensor& y);
  // dx += the router's part of the gradient.
  void RouteBackward(BlockContext& context, const Tensor& router, const Gradient& drouter,
                     const Tensor& dweights, double aux_scale, const Tensor& dx);

  const ModelConfig config_;
  const MoeConfig moe_;
  const std::string prefix_;
  const MoeRuntime runtime_;
  const Tensor expert_bias_;
  const Tensor expert_counts_;
  const std::int64_t num_held_;            // experts that this rank holds
  const std::int64_t fc1_rows_;            // rows of one expert's linear_fc1
  std::unique_ptr<SharedExperts> shared_;  // null: none
  std::size_t num_shared_params_ = 0;

  // What PlanRouting allocates, with the dispatch.
  struct Routing {
    Tensor logits, scores, experts, weights;
  };
  Routing routing_;
  std::unique_ptr<Dispatch> dispatch_;

  struct Saved {
    Tensor x;
    Tensor rows;         // x of each row of the experts [R, H]
    Tensor row_weights;  // [R]
    Tensor projected;    // [R, 2F] or [R, F]
    Tensor activated;    // [R, F]; null if it is computed again
  };
  Saved saved_;
};

}  // namespace ckpt::trainer

#endif  // CKPT_TRAINER_MODEL_MOE_H_
