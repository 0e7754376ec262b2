#include "trainer/step/train_config.h"

#include <algorithm>
#include <string>
#include <string_view>

#include <fmt/format.h>

#include "core/base/units.h"

namespace ckpt::trainer {
namespace {

// Two weight slots: for the unit in use and the one gathered next. One gradient slot, for a unit
// whose gradients are complete.
constexpr SlotOptions kFewestSlots = {.weight_slots = 2, .gradient_slots = 1};

// Collects violations.
class Rules {
 public:
  void Require(bool holds, std::string_view rule, std::string_view actual, std::string_view hint) {
    if (!holds) status_.Add(Error(ErrorKind::kUsage, rule).Actual(actual).Hint(hint));
  }
  void Add(Status status) { status_.Add(std::move(status)); }
  [[nodiscard]] Status Take() { return std::move(status_); }

 private:
  Status status_;
};

void CheckBatch(const TrainConfig& config, Rules& rules) {
  rules.Require(config.seq_length > 0, "seq_length must be positive",
                fmt::format("{}", config.seq_length), "set seq_length");
  rules.Require(config.micro_batch_size > 0, "micro_batch_size must be positive",
                fmt::format("{}", config.micro_batch_size), "set micro_batch_size");
  const std::int64_t per_pass = config.micro_batch_size * config.mesh.world_size;
  const bool divides =
      per_pass > 0 && config.global_batch_size > 0 && config.global_batch_size % per_pass == 0;
  rules.Require(divides, "global_batch_size must be a multiple of micro_batch_size times the ranks",
                fmt::format("{} of {} x {}", config.global_batch_size, config.micro_batch_size,
                            config.mesh.world_size),
                fmt::format("for example global_batch_size={}",
                            per_pass > 0 ? per_pass : config.mesh.world_size));
}

void CheckMoe(const TrainConfig& config, Rules& rules) {
  if (!config.model.moe) return;
  const MoeConfig& moe = *config.model.moe;
  const RouterForm& router = moe.router;
  rules.Require(!moe.pad_to_capacity || moe.capacity_factor.has_value(),
                "moe_pad_expert_input_to_capacity needs a capacity",
                "no moe_expert_capacity_factor", "set moe_expert_capacity_factor, or do not pad");
  rules.Require(router.num_groups > 0 && moe.num_experts % router.num_groups == 0,
                "moe_router_num_groups must divide num_experts",
                fmt::format("{} groups of {} experts", router.num_groups, moe.num_experts),
                "choose a divisor of num_experts");
  const std::int64_t eligible = router.num_groups > 0
                                    ? moe.num_experts / router.num_groups * router.group_topk
                                    : moe.num_experts;
  rules.Require(router.topk > 0 && router.topk <= eligible,
                "moe_router_topk must not exceed the experts of the chosen groups",
                fmt::format("{} of {}", router.topk, eligible),
                "lower moe_router_topk or raise moe_router_group_topk");
  rules.Require(config.dispatcher != Dispatcher::kAllGather || !moe.capacity_factor,
                "an expert capacity needs moe_token_dispatcher_type=alltoall", "allgather",
                "set moe_token_dispatcher_type=alltoall");
}

void CheckPrecision(const TrainConfig& config, Rules& rules) {
  const Precision& precision = config.precision;
  const bool is_canonical = config.reduction == Reduction::kCanonical;
  const bool fixed_sums = precision.main_grads == DType::kInt64;
  const bool fixed_wire = precision.grad_comm == DType::kInt64;
  rules.Require(fixed_sums == is_canonical && fixed_wire == is_canonical,
                "fixed-point gradients and reduction=canonical go together",
                DTypeName(precision.main_grads),
                "leave main_grads_dtype and grad_comm_dtype to reduction=canonical");
  rules.Require(!is_canonical || config.dispatcher != Dispatcher::kAllGather ||
                    config.mesh.expert_parallel == 1,
                "reduction=canonical needs moe_token_dispatcher_type=alltoall", "allgather",
                "set moe_token_dispatcher_type=alltoall");
  rules.Require(
      precision.main_params == DType::kFloat32 || precision.main_params == precision.compute,
      "main_params_dtype must be float32 or the compute dtype", DTypeName(precision.main_params),
      "set main_params_dtype=float32");
  rules.Require(!config.optimizer.moments_on_host || precision.main_params == DType::kFloat32,
                "optimizer_cpu_offload keeps moments in float32", DTypeName(precision.main_params),
                "set main_params_dtype=float32");
  rules.Require(
      config.optimizer.kind != OptimizerKind::kAdam || precision.main_params != DType::kBfloat16,
      "Adam's weights and moments need float32", DTypeName(precision.main_params),
      "set main_params_dtype=float32");
}

void CheckEngine(const TrainConfig& config, Rules& rules) {
  rules.Require(
      !config.overlap_param_gather.value_or(false) || config.overlap_grad_reduce.value_or(false),
      "overlap_param_gather needs overlap_grad_reduce", "overlap_grad_reduce off",
      "set overlap_grad_reduce=true");
  rules.Require(config.slots.weight_slots >= kFewestSlots.weight_slots &&
                    config.slots.gradient_slots >= kFewestSlots.gradient_slots,
                "at least two weight slots and one gradient slot are needed",
                fmt::format("{} and {}", config.slots.weight_slots, config.slots.gradient_slots),
                "raise weight_slots and gradient_slots");
  rules.Require(
      config.slots.prefetch_depth >= 1 && config.slots.prefetch_depth < config.slots.weight_slots,
      "a unit in use and those gathered ahead of it need a weight slot each",
      fmt::format("prefetch_depth {} with {} slots", config.slots.prefetch_depth,
                  config.slots.weight_slots),
      fmt::format("set weight_slots={}", std::max(config.slots.prefetch_depth, 1) + 1));
  rules.Require(config.gpu_collectives != GpuCollectives::kNccl ||
                    config.dispatcher != Dispatcher::kFlex || config.mesh.expert_parallel == 1,
                "moe_token_dispatcher_type=flex needs ranks that read each other's memory",
                "gpu_collectives=nccl", "set moe_token_dispatcher_type=alltoall");
  rules.Require(config.clip_grad >= 0, "clip_grad must not be negative",
                fmt::format("{}", config.clip_grad), "set clip_grad=0 to switch clipping off");
}

std::string BothUnits(std::uint64_t bytes) {
  return fmt::format("{} ({})", bytes, FormatByteSize(bytes));
}

}  // namespace

void ApplyReduction(TrainConfig& config) {
  if (config.reduction != Reduction::kCanonical) return;
  config.precision.main_grads = DType::kInt64;
  config.precision.grad_comm = DType::kInt64;
}

Status ValidateTrainConfig(const TrainConfig& config) {
  Rules rules;
  const std::int64_t num_experts = config.model.moe ? config.model.moe->num_experts : 0;
  rules.Add(ValidateMesh(config.mesh, num_experts));
  CheckBatch(config, rules);
  CheckMoe(config, rules);
  CheckPrecision(config, rules);
  CheckEngine(config, rules);
  rules.Add(ValidateOptimizer(config.optimizer));
  rules.Add(ValidateSchedule(config.schedule));
  return rules.Take();
}

Status CheckUnshardedBytes(const TrainConfig& config, const ShardPlan& plan) {
  const int moments = NumMoments(config.optimizer);
  const std::uint64_t slots_bytes = PlanBytes(plan, moments).slots;
  if (config.max_unsharded_bytes == 0 || slots_bytes <= config.max_unsharded_bytes) {
    return OkStatus();
  }
  std::string hint = fmt::format("set max_unsharded_bytes={}", slots_bytes);
  ShardPlan fewest = plan;
  fewest.slots = kFewestSlots;
  const std::uint64_t fewest_bytes = PlanBytes(fewest, moments).slots;
  if (fewest_bytes <= config.max_unsharded_bytes) {
    hint += fmt::format(", or weight_slots={} and gradient_slots={}, which need {}",
                        kFewestSlots.weight_slots, kFewestSlots.gradient_slots,
                        BothUnits(fewest_bytes));
  }
  return Error(ErrorKind::kUsage, "whole units need more memory than max_unsharded_bytes allows")
      .Expected(fmt::format("at least {} bytes", BothUnits(slots_bytes)))
      .Actual(BothUnits(config.max_unsharded_bytes))
      .Hint(hint);
}

}  // namespace ckpt::trainer
