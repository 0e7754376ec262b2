// Model: a decoder with hand-written forward and backward over Ops. ParamAccess gives it its
// parameters.
#ifndef CKPT_TRAINER_MODEL_MODEL_H_
#define CKPT_TRAINER_MODEL_MODEL_H_

#include <cstdint>
#include <memory>
#include <vector>

#include "core/base/result.h"
#include "trainer/device/arena.h"
#include "trainer/device/device.h"
#include "trainer/model/block.h"
#include "trainer/model/model_config.h"
#include "trainer/model/moe.h"
#include "trainer/ops/ops.h"
#include "trainer/ops/phase_clock.h"
#include "trainer/params/param_access.h"
#include "trainer/params/param_spec.h"

namespace ckpt::trainer {

struct ModelRuntime {
  Ops* ops = nullptr;
  Device* device = nullptr;
  Queue* queue = nullptr;       // the compute queue
  PhaseClock* clock = nullptr;  // of that queue; null: no times are kept
  DType compute = DType::kFloat32;
  Recompute recompute = Recompute::kNone;
  int prefetch_depth = 1;  // layers whose weights are requested ahead of the one that runs
  // Tokens whose logits exist at once. Gradients of the output layer are added up over the chunks.
  std::int64_t loss_chunk_tokens = 4096;
  MoeRuntime moe;
  // Made when the model is: memory for activations, and tables for sequences of this length. A
  // micro-batch that needs more gets it when it comes.
  std::uint64_t activation_bytes = 0;
  std::int64_t seq = 0;
};

// One micro-batch of a rank, in device memory.
struct MicroBatch {
  Tensor tokens;  // int32 [batch · seq]
  Tensor labels;  // int32 [batch · seq]: the token that should follow; negative: not counted
  std::int64_t batch = 0;
  std::int64_t seq = 0;
  TokenLayout layout = {};
};

struct LossScales {
  double token = 1;  // weight of each counted token's loss in the gradient
  double aux = 1;    // weight of the auxiliary losses
};

// State that has no gradient and is the same on every rank.
struct ReplicatedBuffer {
  ReplicatedBufferSpec spec;
  Tensor values;  // of the statistics' dtype
};

// The units of a model, without a device, for rank `expert_rank` of the `expert_ranks` that divide
// the experts. `Model::units` returns this list.
//
// REQUIRES: expert_ranks divides the number of experts.
std::vector<UnitSpec> ListUnits(const ModelConfig& config, int expert_rank, int expert_ranks);

// The buffers of a model, without a device, in the order of `Model::buffers`.
std::vector<ReplicatedBufferSpec> ListBuffers(const ModelConfig& config);

// Unit 0 is the embedding, unit 1 + l is layer l, and the last unit is the head (final norm and
// output layer). If the embedding is tied to the output layer, unit 0 is all three ("root"), and
// there is no other unit for the head.
//
// Thread-safety: the rank's thread.
class Model {
 public:
  // Errors: kUsage (the group does not divide the experts; learned positions), kSystem.
  static Result<std::unique_ptr<Model>> Create(const ModelConfig& config,
                                               const ModelRuntime& runtime);
  virtual ~Model() = default;

  [[nodiscard]] virtual const ModelConfig& config() const = 0;
  // The parameters that this rank needs: all dense ones, and those of the experts it holds.
  [[nodiscard]] virtual const std::vector<UnitSpec>& units() const = 0;
  [[nodiscard]] virtual std::vector<ReplicatedBuffer>& buffers() = 0;
  // int64 [L, E]: the rows that the experts held here have received since the counts were cleared
  // (MoeBlock). One row for each of the L layers with experts, in the order of the expert biases
  // among `buffers` if there are any; null without experts. Added up over all ranks, they are the
  // tokens of each expert.
  [[nodiscard]] virtual const Tensor& expert_counts() const = 0;

  // Writes losses [tokens] (0 where not counted), adds the auxiliary losses to aux_loss [1], and
  // adds every gradient. losses and aux_loss have the statistics' dtype. Everything is enqueued on
  // the compute queue, and the call does not wait for it.
  //
  // Errors: kSystem (out of memory).
  virtual Status ForwardBackward(ParamAccess& params, const MicroBatch& batch,
                                 const LossScales& scales, const Tensor& losses,
                                 const Tensor& aux_loss) = 0;
  // Only forward. `logits` [tokens, padded vocabulary] may be null.
  virtual Status Forward(ParamAccess& params, const MicroBatch& batch, const Tensor& losses,
                         const Tensor& logits) = 0;

  // The most activation memory that was ever in use at once.
  [[nodiscard]] virtual std::uint64_t activation_peak_bytes() const = 0;
};

}  // namespace ckpt::trainer

#endif  // CKPT_TRAINER_MODEL_MODEL_H_
