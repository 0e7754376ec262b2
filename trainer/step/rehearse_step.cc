#include "trainer/step/rehearse_step.h"

#include <algorithm>
#include <cstddef>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "core/base/check.h"
#include "trainer/device/collectives.h"
#include "trainer/mesh/topology.h"
#include "trainer/model/model.h"
#include "trainer/params/param_access.h"
#include "trainer/rehearsal/idle_device.h"
#include "trainer/rehearsal/idle_group.h"
#include "trainer/rehearsal/idle_ops.h"
#include "trainer/step/trained_units.h"

namespace ckpt::trainer {
namespace {

Tensor TensorOf(const ParamSpec& param, std::byte* memory, DType dtype) {
  Tensor tensor(memory, dtype, {});
  tensor.ndim = static_cast<int>(param.shape.size());
  CKPT_CHECK(tensor.ndim <= Tensor::kMaxDims);
  std::ranges::copy(param.shape, tensor.dims.begin());
  return tensor;
}

std::uint64_t LargestBytes(const std::vector<UnitSpec>& units, DType dtype) {
  std::uint64_t largest = 0;
  for (const UnitSpec& unit : units) {
    for (const ParamSpec& param : unit.params) {
      largest = std::max(largest, TensorOf(param, nullptr, dtype).size_bytes());
    }
  }
  return largest;
}

// All parameters and gradients share one place, because no operation reads them.
class IdleParams final : public ParamAccess {
 public:
  IdleParams(const std::vector<UnitSpec>& units, Buffer memory, DType compute)
      : memory_(std::move(memory)) {
    for (const UnitSpec& unit : units) {
      std::vector<Tensor>& weights = weights_.emplace_back();
      std::vector<Gradient>& gradients = gradients_.emplace_back();
      for (const ParamSpec& param : unit.params) {
        weights.push_back(TensorOf(param, memory_.data(), compute));
        gradients.push_back({.tensor = param.trainable ? weights.back() : Tensor()});
      }
    }
  }

  void Prefetch(int /*unit*/) override {}
  std::span<const Tensor> Acquire(int unit) override {
    return weights_[static_cast<std::size_t>(unit)];
  }
  void Release(int /*unit*/) override {}
  std::span<const Gradient> AcquireGradients(int unit) override {
    return gradients_[static_cast<std::size_t>(unit)];
  }
  void ReduceGradients(int /*unit*/) override {}

 private:
  const Buffer memory_;
  std::vector<std::vector<Tensor>> weights_;
  std::vector<std::vector<Gradient>> gradients_;
};

}  // namespace

Result<RehearsedBytes> RehearseStep(const TrainConfig& config, int rank) {
  const Topology topology(config.mesh, rank);
  const DType compute = config.precision.compute;
  const std::unique_ptr<Device> device = MakeIdleDevice();
  const std::unique_ptr<Ops> ops = MakeIdleOps();
  const std::unique_ptr<Queue> queue = device->MakeQueue("compute");
  CKPT_ASSIGN_OR_RETURN(const std::unique_ptr<Collectives> experts,
                        device->MakeCollectives(MakeIdleGroup(topology.Index(Group::kExpert),
                                                              topology.Size(Group::kExpert))));
  CKPT_ASSIGN_OR_RETURN(
      const std::unique_ptr<Model> model,
      Model::Create(config.model,
                    {.ops = ops.get(),
                     .device = device.get(),
                     .queue = queue.get(),
                     .compute = compute,
                     .recompute = config.recompute,
                     .loss_chunk_tokens = config.loss_chunk_tokens,
                     .moe = {.expert_group = experts.get(),
                             .dispatcher = config.dispatcher,
                             .rank_capacity_factor = config.rank_capacity_factor,
                             .separate_sources = config.reduction == Reduction::kCanonical}}));
  const std::vector<UnitSpec> units = ListTrainedUnits(config, topology.expert());
  CKPT_ASSIGN_OR_RETURN(Buffer memory,
                        device->Allocate(LargestBytes(units, compute), MemoryUse::kSlots));
  IdleParams params(units, std::move(memory), compute);

  const std::int64_t tokens = config.micro_batch_size * config.seq_length;
  // Counted as kSlots, which the result leaves out: the trainer owns these arrays, not the model.
  CKPT_ASSIGN_OR_RETURN(
      const Buffer inputs,
      device->Allocate(static_cast<std::uint64_t>(tokens) * sizeof(double), MemoryUse::kSlots));
  const Tensor numbers(inputs.data(), DType::kInt32, {tokens});
  const Tensor losses(inputs.data(), StatisticsDtype(compute), {tokens});
  const MicroBatch batch = {.tokens = numbers,
                            .labels = numbers,
                            .batch = config.micro_batch_size,
                            .seq = config.seq_length};
  CKPT_RETURN_IF_ERROR(model->ForwardBackward(params, batch, {}, losses, losses.Rows(0, 1)));
  CKPT_RETURN_IF_ERROR(model->Forward(params, batch, losses, {}));
  return RehearsedBytes{.activations = model->activation_peak_bytes(),
                        .tables = device->usage(MemoryUse::kOther).peak_bytes};
}

}  // namespace ckpt::trainer
