#include "trainer/explain/forecast.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <optional>
#include <set>
#include <span>
#include <utility>

#include <fmt/format.h>

#include "trainer/explain/explanation.h"
#include "trainer/model/dispatch.h"
#include "trainer/model/flops.h"
#include "trainer/model/model.h"
#include "trainer/optim/optimizer.h"
#include "trainer/step/rehearse_step.h"
#include "trainer/step/step_buffers.h"
#include "trainer/step/trained_units.h"

namespace ckpt::train {
namespace {

using trainer::Group;
using trainer::GroupPlan;
using trainer::ModelConfig;
using trainer::ParamClass;
using trainer::ParamSpec;
using trainer::Recompute;
using trainer::ShardPlan;
using trainer::Topology;
using trainer::TrainConfig;
using trainer::UnitSpec;

constexpr double kMs = 1e3;
constexpr double kHalfBytes = 2;  // of an activation: rates are those of bfloat16

// In bytes.
double SizeOf(std::int64_t elems, DType dtype) {
  return static_cast<double>(elems) * static_cast<double>(ElementBytes(dtype));
}

// --- communication -------------------------------------------------------------------------------

// A group of ranks as the links see it: every host has as many of its members.
struct Placed {
  int in_host = 1;
  int hosts = 1;

  [[nodiscard]] int size() const { return in_host * hosts; }
};

Placed PlaceOnHosts(const Topology& topology, Group group, const Cluster& cluster) {
  const std::vector<int> members = topology.Members(group);
  std::set<int> hosts;
  for (const int member : members) hosts.insert(member / cluster.gpus_per_host);
  const auto num_hosts = static_cast<int>(hosts.size());
  return {.in_host = static_cast<int>(members.size()) / num_hosts, .hosts = num_hosts};
}

struct Placements {
  Placed shard;
  Placed expert_shard;
  Placed outer;

  // The ranks that divide `group`.
  [[nodiscard]] const Placed& InnerOf(const GroupPlan& group) const {
    return group.param_class == ParamClass::kExpert ? expert_shard : shard;
  }
  // Whether updates write the weights of both ranks: GPUs of one host do.
  [[nodiscard]] bool UpdatesExchange(const GroupPlan& group) const {
    return group.UpdatesMayExchange() && InnerOf(group).hosts == 1;
  }
};

class Links {
 public:
  explicit Links(const Cluster& cluster) : cluster_(cluster) {}

  // `bytes`: of the whole array, of which each member has or gets a part.
  [[nodiscard]] double GatherMs(double bytes, const Placed& group) const {
    return CallMs(TransferSeconds(bytes, group, cluster_.gpu.gather_bytes.value), Ring(group));
  }
  [[nodiscard]] double ReduceMs(double bytes, const Placed& group) const {
    return CallMs(TransferSeconds(bytes, group, cluster_.gpu.reduce_bytes.value), Ring(group));
  }
  // Of the parts of all members that a rank adds, and of the sums that it writes.
  [[nodiscard]] double SumMs(double parts_bytes, double sums_bytes) const {
    return kMs * (parts_bytes + sums_bytes) / cluster_.gpu.sum_bytes.value;
  }
  // Of a gather or a reduction of `bytes`: what it reads and writes of a GPU's own memory is lost to
  // the kernels beside it, which are at the limit of memory or of power. Sums that read the links
  // write nothing there, but hold multiprocessors, and cost a step as much as with copies.
  [[nodiscard]] double CopiesMs(double bytes, const Placed& group) const {
    const double read_and_written = 2 * bytes * (group.size() - 1) / group.size();
    return kMs * read_and_written / cluster_.gpu.copy_bytes.value;
  }
  [[nodiscard]] double AllReduceMs(double bytes, const Placed& group) const {
    return CallMs(TransferSeconds(bytes, group, cluster_.gpu.reduce_bytes.value) +
                      TransferSeconds(bytes, group, cluster_.gpu.gather_bytes.value),
                  std::min(2 * Ring(group), Tree(group)));
  }
  // `bytes`: of a rank's tokens, for all members in equal parts.
  [[nodiscard]] double ExchangeMs(double bytes, const Placed& group) const {
    const double part = bytes / group.size();
    const double in_host = part * (group.in_host - 1) / cluster_.gpu.exchange_bytes.value;
    const int others = group.size() - group.in_host;
    const double outside = others == 0 ? 0 : part * others / PortBytes();
    return CallMs(std::max(in_host, outside), group.hosts > 1
                                                  ? cluster_.gpu.network_hop_seconds.value
                                                  : cluster_.gpu.host_hop_seconds.value);
  }

 private:
  // What is not communicated has no latency either.
  [[nodiscard]] double CallMs(double seconds, double hops) const {
    return seconds == 0 ? 0 : kMs * (cluster_.gpu.call_seconds.value + hops + seconds);
  }
  // Each host's members bring in the other hosts' bytes together, and share them; both at once.
  [[nodiscard]] double TransferSeconds(double bytes, const Placed& group, double host_rate) const {
    const double in_host = bytes * (group.in_host - 1) / group.in_host / host_rate;
    const double outside =
        group.hosts == 1 ? 0
                         : bytes * (group.hosts - 1) / group.hosts / group.in_host / PortBytes();
    return std::max(in_host, outside);
  }
  // The hops of a gather or a reduction: a ring through all members, or, with one member a host,
  // NCCL's trees for that case (PAT).
  [[nodiscard]] double Ring(const Placed& group) const {
    const GpuRates& gpu = cluster_.gpu;
    if (group.in_host == 1) return gpu.network_hop_seconds.value * Depth(group);
    return gpu.host_hop_seconds.value * group.hosts * (group.in_host - 1) +
           gpu.network_hop_seconds.value * (group.hosts - 1);
  }
  // Of a sum that every member gets.
  [[nodiscard]] double Tree(const Placed& group) const {
    const GpuRates& gpu = cluster_.gpu;
    return 2 * (gpu.host_hop_seconds.value * (group.in_host - 1) +
                gpu.network_hop_seconds.value * Depth(group));
  }
  static double Depth(const Placed& group) { return std::ceil(std::log2(group.hosts)); }
  [[nodiscard]] double PortBytes() const { return cluster_.network.port_bytes.value; }

  const Cluster& cluster_;
};

// --- computing -----------------------------------------------------------------------------------

// What a layer computes for a micro-batch, in milliseconds.
struct LayerTimes {
  double forward = 0;
  double backward = 0;
};

class Kernels {
 public:
  Kernels(const TrainConfig& config, const Cluster& cluster)
      : config_(config),
        model_(config.model),
        gpu_(cluster.gpu),
        tokens_(static_cast<double>(config.micro_batch_size * config.seq_length)) {}

  [[nodiscard]] LayerTimes Layer(const UnitSpec& unit, std::int64_t layer) const {
    double forward = 2 * tokens_ * DenseWeights(unit) / gpu_.product_flops.value;
    double backward = 2 * forward;
    const auto add = [&](double seconds, double forward_share) {
      forward += seconds * forward_share;
      backward += seconds * (1 - forward_share);
    };
    const double attention = tokens_ *
                             trainer::AttentionFlopsPerToken(model_, layer, config_.seq_length) /
                             gpu_.attention_flops.value;
    add(attention, 1 / (1 + gpu_.attention_backward_ratio.value));
    // Forward: two arrays in, two out; backward: three in, one out; two norms.
    add(Pass(2 * 8 * Width(), gpu_.norm_bytes), 0.5);
    // Forward: one in, one out; backward: two in, one out.
    add(Pass(5 * static_cast<double>((model_.num_attention_heads + model_.num_query_groups) *
                                     model_.kv_channels),
             gpu_.query_key_bytes),
        0.4);
    const double activation = Pass(8 * ActivationWidth(layer), gpu_.activation_bytes);
    add(activation, 3.0 / 8);
    if (IsMoe(layer)) AddExperts(unit, add);
    add(gpu_.gap_seconds.value, 1.0 / 3);
    if (config_.recompute == Recompute::kLayers) backward += forward;
    if (config_.recompute == Recompute::kActivations) backward += activation * 3.0 / 8;
    return {.forward = kMs * forward, .backward = kMs * backward};
  }

  // Output layer and loss.
  [[nodiscard]] double HeadMs() const {
    const auto vocab = static_cast<double>(model_.padded_vocab_size);
    const double products = 6 * tokens_ * vocab * Width() / gpu_.product_flops.value;
    return kMs * (products + Pass(3 * vocab, gpu_.loss_bytes));
  }
  // The embedding, forward and backward alike.
  [[nodiscard]] double EmbeddingMs() const { return kMs * Pass(2 * Width(), gpu_.norm_bytes); }

  // Norm of the gradients, and AdamW: weight and moments in and out, the gradient in, the compute
  // weight out. Where updates exchange weights, memory also takes those that the other rank writes.
  [[nodiscard]] double UpdateMs(const ShardPlan& plan, const Placements& placed) const {
    double elems = 0;
    double exchanged = 0;
    for (const GroupPlan& group : plan.groups) {
      if (!group.trainable) continue;
      elems += static_cast<double>(group.main.elems);
      if (placed.UpdatesExchange(group)) exchanged += static_cast<double>(group.main.elems);
    }
    const double gradient = SizeOf(1, plan.precision.main_grads);
    const double state = SizeOf(1, plan.precision.main_params);
    const double compute = SizeOf(1, plan.precision.compute);
    const double arrays = 2 * (1 + trainer::NumMoments(config_.optimizer));
    const double update = arrays * state + gradient + compute;
    double seconds = std::max((elems * update + exchanged * compute) / gpu_.update_bytes.value,
                              exchanged * compute / gpu_.gather_bytes.value);
    if (config_.optimizer.moments_on_host) {  // they come and go while others are updated
      const double moments = trainer::NumMoments(config_.optimizer) * state;
      seconds = std::max(seconds, elems * moments / gpu_.host_copy_bytes.value);
    }
    return kMs * (elems * gradient / gpu_.square_bytes.value + seconds);
  }

  // Of the rows that a rank sends to experts in one direction.
  [[nodiscard]] double ExchangedBytes() const {
    const trainer::MoeConfig& moe = *model_.moe;
    const double rows = trainer::RowsPerToken(config_.dispatcher, moe.num_experts, moe.router.topk,
                                              config_.mesh.expert_parallel);
    return tokens_ * rows * Width() * SizeOf(1, config_.precision.compute);
  }
  [[nodiscard]] bool IsMoe(std::int64_t layer) const {
    return model_.moe && model_.is_moe_layer[static_cast<std::size_t>(layer)];
  }

 private:
  [[nodiscard]] double Width() const { return static_cast<double>(model_.hidden_size); }
  // Seconds for a number of elements of each token.
  [[nodiscard]] double Pass(double elems, const Rate& rate) const {
    return tokens_ * elems * kHalfBytes / rate.value;
  }
  static double DenseWeights(const UnitSpec& unit) {
    double weights = 0;
    for (const ParamSpec& param : unit.params) {
      if (param.param_class == ParamClass::kDense && param.shape.size() > 1) {
        weights += static_cast<double>(NumElements(param.shape));
      }
    }
    return weights;
  }
  // Of a token's inner activations, of all experts that it meets.
  [[nodiscard]] double ActivationWidth(std::int64_t layer) const {
    if (!IsMoe(layer)) return static_cast<double>(model_.ffn_hidden_size);
    const trainer::MoeConfig& moe = *model_.moe;
    return static_cast<double>(moe.router.topk * moe.ffn_hidden_size +
                               moe.shared_expert_ffn_hidden_size);
  }
  // Rows that products of experts compute for a row that is there. An expert gets any number of
  // rows, so its last tile is half empty on average, and it has one.
  [[nodiscard]] double ComputedShare(const Rate& tile_rows) const {
    const trainer::MoeConfig& moe = *model_.moe;
    const double rows_of_expert = tokens_ * static_cast<double>(moe.router.topk) *
                                  config_.mesh.expert_parallel /
                                  static_cast<double>(moe.num_experts);
    return std::max(rows_of_expert + tile_rows.value / 2, tile_rows.value) / rows_of_expert;
  }
  // A rank computes as many rows as its tokens have, whoever's they are.
  template <typename Add>
  void AddExperts(const UnitSpec& unit, const Add& add) const {
    const trainer::MoeConfig& moe = *model_.moe;
    double weights = 0;
    for (const ParamSpec& param : unit.params) {
      if (param.param_class == ParamClass::kExpert && param.shape.size() > 1) {
        weights += static_cast<double>(NumElements(param.shape));
      }
    }
    const double of_expert =
        weights * config_.mesh.expert_parallel / static_cast<double>(moe.num_experts);
    const auto topk = static_cast<double>(moe.router.topk);
    // Forward, for the rows' gradients, and for the weights'.
    const double rows = ComputedShare(gpu_.expert_tile_rows);
    const double sums = ComputedShare(gpu_.expert_sum_rows);
    add(2 * tokens_ * topk * of_expert * (2 * rows + sums) / gpu_.expert_product_flops.value,
        rows / (2 * rows + sums));
    // To rows and back, twice: each reads one and writes topk, or the reverse.
    add(Pass(4 * (topk + 1) * Width(), gpu_.expert_row_bytes), 0.5);
    add(tokens_ * gpu_.router_seconds.value, 0.5);
  }

  const TrainConfig& config_;
  const ModelConfig& model_;
  const GpuRates& gpu_;
  const double tokens_;
};

// --- a step --------------------------------------------------------------------------------------

// What a unit communicates in a step of so many micro-batches, as ParamStore does it. Kernels that
// add what other ranks have take multiprocessors, and copies take memory, so their time is the
// computation's.
void AddCommunication(const ShardPlan& plan, std::size_t unit, int micro_batches,
                      const Links& links, const Placements& placed, UnitWork& work) {
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
  const Links links(cluster);
  const Kernels kernels(config, cluster);
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

// The parts of a forecast that depend on the experts of a rank, not on how many ranks there are.
struct Activations {
  int expert_parallel = 0;
  trainer::RehearsedBytes bytes;
  std::optional<trainer::RehearsedBytes> with_mean_rows = {};  // if it was asked for
};

// Says what a GPU holds, and whether it has memory for it.
Status ReckonMemory(const TrainConfig& config, const Cluster& cluster,
                    std::span<const UnitSpec> units, const ShardPlan& plan,
                    Activations& activations, Forecast& forecast) {
  const std::uint64_t state_bytes = trainer::PlanTrainingBytes(config.optimizer, plan).total() +
                                    trainer::StepBytes(config, units, plan);
  const auto bytes_with = [&](const trainer::RehearsedBytes& step) {
    return state_bytes + step.activations + step.tables;
  };
  const auto fits = [&](std::uint64_t bytes) {
    return static_cast<double>(bytes) <= cluster.gpu.memory_bytes.value;
  };
  forecast.bytes_of_gpu = bytes_with(activations.bytes);
  forecast.fits = fits(forecast.bytes_of_gpu);
  if (forecast.fits || config.mesh.expert_parallel == 1 || config.rank_capacity_factor) {
    return OkStatus();
  }
  if (!activations.with_mean_rows) {
    TrainConfig bounded = config;
    bounded.rank_capacity_factor = 1;
    CKPT_ASSIGN_OR_RETURN(activations.with_mean_rows, trainer::RehearseStep(bounded, 0));
  }
  const std::uint64_t bytes = bytes_with(*activations.with_mean_rows);
  if (fits(bytes)) forecast.bytes_with_mean_rows = bytes;
  return OkStatus();
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
