#include "trainer/explain/comm_schedule.h"

#include <algorithm>
#include <cstddef>
#include <vector>

#include "trainer/model/dispatch.h"

namespace ckpt::train {
namespace {

using trainer::GroupPlan;
using trainer::ShardPlan;
using trainer::TrainConfig;

std::uint64_t BytesOf(std::int64_t elems, DType dtype) {
  return static_cast<std::uint64_t>(elems) * ElementBytes(dtype);
}

// Which units' weights are gathered, as ParamStore and its SlotPool do it. The ends have their own
// places and are kept until weights change.
class WeightTraffic {
 public:
  WeightTraffic(const TrainConfig& config, const ShardPlan& plan)
      : prefetch_depth_(config.overlaps_gathers(false) ? plan.slots.prefetch_depth : 0),
        keeps_(!config.poison_released),
        slots_(static_cast<std::size_t>(plan.slots.weight_slots)) {
    for (const std::vector<std::size_t>& groups : plan.units) {
      std::uint64_t& bytes = unit_bytes_.emplace_back(0);
      for (const std::size_t g : groups) {
        const GroupPlan& group = plan.groups[g];
        if (group.gathers()) bytes += BytesOf(group.layout.total_elems, plan.precision.compute);
      }
    }
    for (const ShardPlan::EndPlace& end : plan.ends) ends_.push_back(end.unit);
    end_layers_ = static_cast<int>(unit_bytes_.size() - ends_.size()) + 1;
  }

  Collectives Forward() {
    done_ = {};
    if (!has_ends_) {
      for (const int end : ends_) Count(end);
    }
    has_ends_ = keeps_;
    PrefetchFrom(1);
    for (int unit = 1; unit < end_layers_; ++unit) {
      Gather(unit);
      PrefetchFrom(unit + 1);
      Release(unit);
    }
    return done_;
  }
  Collectives Backward() {
    done_ = {};
    for (int unit = end_layers_ - 1; unit > 0; --unit) {
      Gather(unit);
      for (int ahead = 1; ahead <= prefetch_depth_ && unit - ahead > 0; ++ahead) {
        Gather(unit - ahead);
      }
      Release(unit);
    }
    return done_;
  }

 private:
  struct Slot {
    int unit = -1;
    bool taken = false;
  };

  [[nodiscard]] std::uint64_t BytesOfUnit(int unit) const {
    return unit_bytes_[static_cast<std::size_t>(unit)];
  }
  void Count(int unit) {
    if (BytesOfUnit(unit) > 0) done_ += {.calls = 1, .bytes = BytesOfUnit(unit)};
  }
  void PrefetchFrom(int first) {
    for (int unit = first; unit < first + prefetch_depth_ && unit < end_layers_; ++unit) {
      Gather(unit);
    }
  }
  void Gather(int unit) {
    if (BytesOfUnit(unit) == 0) return;
    auto slot = std::ranges::find(slots_, unit, &Slot::unit);
    if (slot == slots_.end()) {
      slot = std::ranges::find(slots_, false, &Slot::taken);
      if (slot == slots_.end()) return;
      slot->unit = unit;
      Count(unit);
    }
    slot->taken = true;
  }
  void Release(int unit) {
    const auto slot = std::ranges::find(slots_, unit, &Slot::unit);
    if (slot == slots_.end()) return;
    slot->taken = false;
    if (!keeps_) slot->unit = -1;
    std::rotate(slot, slot + 1, slots_.end());
  }

  const int prefetch_depth_;
  const bool keeps_;  // a released unit may be found again
  std::vector<std::uint64_t> unit_bytes_;
  std::vector<Slot> slots_;  // longest unused first
  std::vector<int> ends_;
  int end_layers_ = 0;  // the unit after the last layer's
  bool has_ends_ = false;
  Collectives done_;
};

Collectives Reduces(const ShardPlan& plan) {
  Collectives reduces;
  for (const std::vector<std::size_t>& groups : plan.units) {
    std::uint64_t bytes = 0;
    for (const std::size_t g : groups) {
      const GroupPlan& group = plan.groups[g];
      if (group.uses_bucket()) bytes += BytesOf(group.layout.total_elems, plan.precision.grad_comm);
    }
    if (bytes > 0) reduces += {.calls = 1, .bytes = bytes};
  }
  return reduces;
}

// Tokens to the experts, in forward and in backward.
Collectives TokenExchanges(const TrainConfig& config) {
  const std::int64_t ranks = config.mesh.expert_parallel;
  if (!config.model.moe || ranks == 1) return {};
  const std::vector<bool>& is_moe = config.model.is_moe_layer;
  const std::int64_t layers = std::count(is_moe.begin(), is_moe.end(), true);
  const std::int64_t tokens = config.micro_batch_size * config.seq_length;
  const trainer::MoeConfig& moe = *config.model.moe;
  const double rows_of_token =
      trainer::RowsPerToken(config.dispatcher, moe.num_experts, moe.router.topk, ranks);
  const auto rows = static_cast<std::int64_t>(static_cast<double>(tokens) * rows_of_token);
  // To the experts and back, in both passes. A recomputation ends at the experts.
  const std::int64_t calls = (config.recompute == trainer::Recompute::kLayers ? 5 : 4) * layers;
  return {.calls = calls,
          .bytes = static_cast<std::uint64_t>(calls) *
                   BytesOf(rows * config.model.hidden_size, config.precision.compute)};
}

Collectives LateReduces(const ShardPlan& plan) {
  const DType wire = plan.precision.grad_comm;
  Collectives reduces;
  for (const GroupPlan& group : plan.groups) {
    if (!group.trainable) continue;
    if (!group.uses_bucket() && group.inner > 1) {
      reduces += {.calls = 1, .bytes = BytesOf(group.gradients.elems, wire)};
    }
    if (group.outer > 1) reduces += {.calls = 1, .bytes = BytesOf(group.part.elems, wire)};
  }
  return reduces;
}

Collectives Refreshes(const ShardPlan& plan) {
  const DType compute = plan.precision.compute;
  Collectives refreshes;
  for (const GroupPlan& group : plan.groups) {
    if (group.main.elems < group.part.elems) {
      refreshes += {.calls = 1, .bytes = BytesOf(group.part.elems, compute)};
    }
    if (group.part.elems < group.weights.elems) {
      refreshes += {.calls = 1, .bytes = BytesOf(group.weights.elems, compute)};
    }
  }
  return refreshes;
}

}  // namespace

CommSchedule PlanCommunication(const TrainConfig& config, const ShardPlan& plan) {
  CommSchedule schedule;
  WeightTraffic weights(config, plan);
  for (MicroBatchSchedule* micro_batch : {&schedule.first, &schedule.later}) {
    micro_batch->forward_gathers = weights.Forward();
    micro_batch->backward_gathers = weights.Backward();
    micro_batch->reduces = Reduces(plan);
    micro_batch->token_exchanges = TokenExchanges(config);
  }
  schedule.late_reduces = LateReduces(plan);
  schedule.refreshes = Refreshes(plan);
  return schedule;
}

}  // namespace ckpt::train
