// Model: a decoder with hand-written forward and backward over Ops, whatever holds its parameters.
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
#include "trainer/params/param_access.h"
#include "trainer/params/param_spec.h"

namespace ckpt::trainer {

struct ModelRuntime {
  Ops* ops = nullptr;
  Device* device = nullptr;
  Queue* queue = nullptr;  // the compute queue
  DType compute = DType::kFloat32;
  bool recompute = false;  // keep only each layer's input, run the layer again in backward
  MoeRuntime moe;          // expert_group null: all experts are here
};

// One rank's share of a step, in device memory.
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

// State that no gradient trains, the same on every rank.
struct ReplicatedBuffer {
  ReplicatedBufferSpec spec;
  Tensor values;  // of the statistics' dtype: float32, or float64 beside float64
};

// The units of a model, without a device: the parameters that rank `expert_rank` of the
// `expert_ranks` which share out the experts needs. What `Model::units` lists.
//
// REQUIRES: the experts divide over the ranks.
std::vector<UnitSpec> ListUnits(const ModelConfig& config, int expert_rank, int expert_ranks);

// The buffers of a model, without a device: what `Model::buffers` has, in that order.
std::vector<ReplicatedBufferSpec> ListBuffers(const ModelConfig& config);

// Unit 0 is the root (embedding, final norm, output layer); unit 1 + l is layer l.
//
// Thread-safety: the rank's thread.
class Model {
 public:
  // Errors: kUsage (the experts do not divide over the group, learned positions), kSystem.
  static Result<std::unique_ptr<Model>> Create(const ModelConfig& config,
                                               const ModelRuntime& runtime);
  virtual ~Model() = default;

  [[nodiscard]] virtual const ModelConfig& config() const = 0;
  // The parameters this rank's expert-parallel place needs: all dense ones, and its experts.
  [[nodiscard]] virtual const std::vector<UnitSpec>& units() const = 0;
  [[nodiscard]] virtual std::vector<ReplicatedBuffer>& buffers() = 0;
  // Rows that came to the experts held here since the counts were cleared (MoeBlock): int64 [L, E], a
  // row for each of the L layers with experts, in the order of the expert biases among `buffers` if
  // there are any; null without experts. Over all ranks they add up to the tokens of each expert.
  [[nodiscard]] virtual const Tensor& expert_counts() const = 0;

  // Writes losses [tokens] (0 where not counted) and adds the auxiliary losses to aux_loss [1],
  // both of the statistics' dtype, and adds every gradient. All enqueued on the compute queue, but
  // for waits on routing.
  //
  // Errors: those of the queue.
  virtual Status ForwardBackward(ParamAccess& params, const MicroBatch& batch,
                                 const LossScales& scales, const Tensor& losses,
                                 const Tensor& aux_loss) = 0;
  // Forward alone. `logits` [tokens, padded vocabulary]: null if not wanted.
  virtual Status Forward(ParamAccess& params, const MicroBatch& batch, const Tensor& losses,
                         const Tensor& logits) = 0;

  // Most activation memory used so far.
  [[nodiscard]] virtual std::uint64_t activation_peak_bytes() const = 0;
};

}  // namespace ckpt::trainer

#endif  // CKPT_TRAINER_MODEL_MODEL_H_
