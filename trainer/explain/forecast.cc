#include "trainer/explain/forecast.h"

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <vector>

#include <fmt/format.h>

#include "trainer/explain/internal/amounts.h"
#include "trainer/explain/internal/forecast_memory.h"
#include "trainer/explain/internal/kernel_times.h"
#include "trainer/explain/internal/link_times.h"
#include "trainer/model/flops.h"
#include "trainer/step/rehearse_step.h"
#include "trainer/step/trained_units.h"

namespace ckpt::train {
namespace {

using trainer::Group;
using trainer::GroupPlan;
using trainer::Recompute;
using trainer::ShardPlan;
using trainer::Topology;
using trainer::TrainConfig;
using trainer::UnitSpec;

// What a unit communicates in a step of so many micro-batches, as ParamStore does it. Kernels that
// add what other ranks have take multiprocessors, and copies take memory, so their time is the
// computation's.
void AddCommunication(const ShardPlan& plan, std::size_t unit, int micro_batches,
                      const LinkTimes& links, const Placements& placed, UnitWork& work) {
  const Placed& outer = placed.outer;
  const DType compute = plan.precision.compute;
  const DType wire = plan.precision.grad_comm;
  for (const std::size_t g : plan.units[unit]) {
    const GroupPlan& group = plan.groups[g];
    const Placed& inner = placed.InnerOf(group);
    const double whole = SizeOf(group.layout.total_elems, compute);
    const double part = SizeOf(group.part.elems, compute);
    if (group.gathers()) {
      work.gather += links.GatherMs(whole, inner);
      // Ends stay where they are until the next step, layers come again in each pass.
      work.forward += links.CopiesMs(whole, inner) / (work.is_end ? micro_batches : 1);
      if (!work.is_end) work.backward += links.CopiesMs(whole, inner);
    }
    if (group.main.elems < group.part.elems) {
      work.refresh_outer += links.GatherMs(part, outer);
      work.forward += links.CopiesMs(part, outer) / micro_batches;
    }
    if (group.part.elems < group.weights.elems && !placed.UpdatesExchange(group)) {
      work.refresh += links.GatherMs(whole, inner);
      work.forward += links.CopiesMs(whole, inner) / micro_batches;
    }
    if (!group.trainable) continue;
    const double gradients = SizeOf(group.gradients.elems, wire);
    const bool is_own = group.part.elems < group.gradients.elems;  // after the reduction
    const DType sums = plan.precision.main_grads;
    if (group.uses_bucket()) {
      const double sent = SizeOf(group.layout.total_elems, wire);
      work.backward += links.CopiesMs(sent, inner);
      if (group.landing) {
        work.reduce += links.GatherMs(sent, inner);
      } else {
        work.reduce += links.ReduceMs(sent, inner);
        work.backward += links.SumMs(sent, SizeOf(group.part.elems, sums));
      }
    } else if (group.inner > 1) {
      work.backward += (is_own ? 1 : 2) * links.CopiesMs(gradients, inner) / micro_batches;
      work.backward += links.SumMs(gradients, SizeOf(group.part.elems, sums)) / micro_batches;
      work.late_reduce +=
          is_own ? links.ReduceMs(gradients, inner) : links.AllReduceMs(gradients, inner);
    }
    if (group.outer > 1) {
      const double of_part = SizeOf(group.part.elems, wire);
      const bool is_sliced = group.main.elems < group.part.elems;
      work.backward += (is_sliced ? 1 : 2) * links.CopiesMs(of_part, outer) / micro_batches;
      work.backward += links.SumMs(of_part, SizeOf(group.main.elems, sums)) / micro_batches;
      work.late_reduce +=
          is_sliced ? links.ReduceMs(of_part, outer) : links.AllReduceMs(of_part, outer);
    }
  }
}

StepWork WorkOf(const TrainConfig& config, const Cluster& cluster,
                const std::vector<UnitSpec>& units, const ShardPlan& plan) {
  const Topology topology(config.mesh, 0);
  const LinkTimes links(cluster);
  const KernelTimes kernels(config, cluster);
  const Placements placed = {.shard = PlaceOnHosts(topology, Group::kShard, cluster),
                             .expert_shard = PlaceOnHosts(topology, Group::kExpertShard, cluster),
                             .outer = PlaceOnHosts(topology, Group::kOuter, cluster)};
  const Placed experts = PlaceOnHosts(topology, Group::kExpert, cluster);
  StepWork work = {.units = {},
                   .head = kernels.HeadMs(),
                   .update = kernels.UpdateMs(plan, placed),
                   .micro_batches = static_cast<int>(config.num_micro_batches()),
                   .slots = config.slots,
                   .overlaps_gathers = config.overlaps_gathers(true),
                   .overlaps_reduces = config.overlaps_reduces(true)};
  std::int64_t layer = 0;
  for (std::size_t u = 0; u < units.size(); ++u) {
    UnitWork& unit = work.units.emplace_back();
    unit.is_end = units[u].is_end || u == 0;
    if (!unit.is_end) {
      const LayerTimes times = kernels.Layer(units[u], layer);
      unit.forward = times.forward;
      unit.backward = times.backward;
      if (kernels.IsMoe(layer)) {
        const double once = links.ExchangeMs(kernels.ExchangedBytes(), experts);
        unit.exchange_forward = 2 * once;
        // A recomputation sends tokens to the experts again.
        unit.exchange_backward = (config.recompute == Recompute::kLayers ? 3 : 2) * once;
      }
      ++layer;
    } else if (u == 0) {
      unit.forward = unit.backward = kernels.EmbeddingMs();
    }
    AddCommunication(plan, u, work.micro_batches, links, placed, unit);
  }
  return work;
}

Result<Forecast> ForecastOf(const TrainConfig& config, const Cluster& cluster,
                            Activations& activations) {
  if (config.mesh.world_size > cluster.max_gpus()) {
    return Error(ErrorKind::kUsage, "the cluster has fewer GPUs than the run has ranks")
        .Expected(fmt::format("at most {} ranks", cluster.max_gpus()))
        .Actual(fmt::format("{}", config.mesh.world_size))
        .Hint("name its network, as in h200x8,ib400");
  }
  if (activations.expert_parallel != config.mesh.expert_parallel) {
    activations = {.expert_parallel = config.mesh.expert_parallel, .bytes = {}};
    CKPT_ASSIGN_OR_RETURN(activations.bytes, trainer::RehearseStep(config, 0));
  }
  const Topology topology(config.mesh, 0);
  const std::vector<UnitSpec> units = trainer::ListTrainedUnits(config, topology.expert());
  const ShardPlan plan = trainer::PlanShards(units, topology, config.plan_options());
  Forecast forecast = {.mesh = config.mesh,
                       .step = SimulateStep(WorkOf(config, cluster, units, plan))};
  const double seconds = forecast.step.total() / kMs;
  const auto tokens =
      static_cast<double>(config.num_micro_batches() * config.micro_batch_size * config.seq_length);
  forecast.tokens_per_s_of_gpu = tokens / seconds;
  forecast.mfu = forecast.tokens_per_s_of_gpu *
                 trainer::TrainingFlopsPerToken(config.model, config.seq_length) /
                 cluster.gpu.peak_flops.value;
  CKPT_RETURN_IF_ERROR(ReckonMemory(config, cluster, units, plan, activations, forecast));
  return forecast;
}

trainer::MeshConfig MeshOf(Strategy strategy, int gpus, const TrainConfig& config,
                           const Cluster& cluster) {
  trainer::MeshConfig mesh = {.world_size = gpus, .expert_parallel = config.mesh.expert_parallel};
  switch (strategy) {
    case Strategy::kNoShard:
      mesh.sharding = trainer::Sharding::kNoShard;
      break;
    case Strategy::kOptim:
      mesh.sharding = trainer::Sharding::kOptim;
      break;
    case Strategy::kOptimGrads:
      mesh.sharding = trainer::Sharding::kOptimGrads;
      break;
    case Strategy::kOptimGradsParams:
      break;
    case Strategy::kHfsdp:
      mesh.outer = trainer::OuterSharding::kOptim;
      [[fallthrough]];
    case Strategy::kHsdp:
      mesh.num_instances = std::max(1, gpus / cluster.gpus_per_host);
      break;
  }
  return mesh;
}

}  // namespace

std::string_view StrategyName(Strategy strategy) {
  static constexpr std::array<std::string_view, kNumStrategies> kNames = {
      "no_shard", "optim", "optim_grads", "optim_grads_params", "hsdp", "hfsdp"};
  return kNames[static_cast<std::size_t>(strategy)];
}

Result<Forecast> ForecastStep(const TrainConfig& config, const Cluster& cluster) {
  Activations activations;
  return ForecastOf(config, cluster, activations);
}

Result<std::vector<SweepCell>> SweepCluster(const TrainConfig& config, const Cluster& cluster,
                                            std::int64_t max_gpus) {
  std::vector<SweepCell> cells;
  Activations activations;
  const std::int64_t end = std::min(max_gpus, cluster.max_gpus());
  const std::int64_t batch_of_rank = config.global_batch_size / config.mesh.world_size;
  const std::int64_t num_experts = config.model.moe ? config.model.moe->num_experts : 0;
  for (int gpus = 1; gpus <= end; gpus *= 2) {
    for (int index = 0; index < kNumStrategies; ++index) {
      const auto strategy = static_cast<Strategy>(index);
      TrainConfig run = config;
      run.mesh = MeshOf(strategy, gpus, config, cluster);
      run.global_batch_size = batch_of_rank * gpus;
      const bool is_hybrid = strategy == Strategy::kHsdp || strategy == Strategy::kHfsdp;
      if (is_hybrid && run.mesh.num_instances == 1) continue;  // is optim_grads_params
      if (!trainer::ValidateMesh(run.mesh, num_experts).ok()) continue;
      SweepCell& cell = cells.emplace_back();
      cell.strategy = strategy;
      CKPT_ASSIGN_OR_RETURN(cell.forecast, ForecastOf(run, cluster, activations));
    }
  }
  return cells;
}

}  // namespace ckpt::train
