// Mixture of experts: router, dispatch to the ranks that hold the experts, experts, combine, shared experts.
#ifndef CKPT_TRAINER_MODEL_MOE_H_
#define CKPT_TRAINER_MODEL_MOE_H_

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "core/base/result.h"
#include "trainer/comm/communicator.h"
#include "trainer/model/block.h"
#include "trainer/model/model_config.h"
#include "trainer/params/param_spec.h"

namespace ckpt::trainer {

enum class Dispatcher : std::uint8_t {
  kAllGather,  // every rank sees every token of the group and computes its own experts' part; partial results are summed
  kAllToAll,   // a token travels to the ranks of its experts and back
};

struct MoeRuntime {
  Communicator* expert_group = nullptr;  // the ranks that share out the experts; rank e holds experts [e·E/P, (e+1)·E/P)
  Dispatcher dispatcher = Dispatcher::kAllToAll;
  // Gradients of expert weights are added up one source rank at a time, so that with fixed-point gradients their sum does
  // not depend on the mesh. Needs kAllToAll.
  bool separate_sources = false;
};

// What one Forward keeps for its Backward.
struct MoeSaved;

// One layer's block. Thread-safety: the rank's thread.
class MoeBlock {
 public:
  // `prefix`: "decoder.layers.3.mlp.". `expert_bias` [E] and `expert_counts` int64 [E] are device memory of the caller;
  // null without expert bias.
  MoeBlock(const ModelConfig& config, std::string prefix, const MoeRuntime& runtime, Tensor expert_bias,
           Tensor expert_counts);

  // router.weight, the shared experts' weights, then linear_fc1 and linear_fc2 of every expert held here (all fc1 first).
  [[nodiscard]] std::vector<ParamSpec> Params() const;

  // y = Σ over the chosen experts (+ shared experts). aux_loss [1] += the auxiliary losses' value, times nothing.
  // The host waits for the routing: row counts decide what follows.
  // Errors: those of the queue and of the expert group.
  Result<MoeSaved*> Forward(BlockContext& context, std::span<const Tensor> weights, const Tensor& x, const Tensor& y,
                            const Tensor& aux_loss);
  // dx [T, H] is overwritten. `aux_scale` multiplies the gradient of the auxiliary losses.
  Status Backward(BlockContext& context, std::span<const Tensor> weights, std::span<const Tensor> gradients,
                  const MoeSaved& saved, const Tensor& dy, double aux_scale, const Tensor& dx);
};

}  // namespace ckpt::trainer

#endif  // CKPT_TRAINER_MODEL_MOE_H_
