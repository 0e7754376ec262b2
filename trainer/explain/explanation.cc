#include "trainer/explain/explanation.h"

#include <numeric>
#include <utility>

#include <fmt/format.h>

#include "core/base/units.h"
#include "trainer/optim/optimizer.h"
#include "trainer/step/rehearse_step.h"
#include "trainer/step/step_buffers.h"
#include "trainer/step/trained_units.h"

namespace ckpt::train {
namespace {

using trainer::GroupPlan;
using trainer::ShardPlan;
using trainer::SlotOptions;
using trainer::Topology;
using trainer::TrainConfig;
using trainer::UnitSpec;

FlatArrays DescribeGroup(const GroupPlan& group) {
  const std::vector<std::int64_t>& sizes = group.layout.num_elems;
  const auto used = std::accumulate(sizes.begin(), sizes.end(), std::int64_t{0});
  return {.units = {},
          .num_units = 1,
          .param_class = group.param_class,
          .trainable = group.trainable,
          .num_params = static_cast<std::int64_t>(group.params.size()),
          .elems = group.layout.total_elems,
          .padding_elems = group.layout.total_elems - used,
          .num_shards = group.layout.num_shards,
          .weight_elems = group.weights.elems,
          .gradient_elems = group.gradients.elems,
          .main_elems = group.main.elems};
}

bool AreAlike(const FlatArrays& a, const FlatArrays& b) {
  return a.param_class == b.param_class && a.trainable == b.trainable &&
         a.num_params == b.num_params && a.elems == b.elems && a.padding_elems == b.padding_elems;
}

// Lists the arrays of units; consecutive units with equal arrays share a row.
std::vector<FlatArrays> DescribeArrays(const std::vector<UnitSpec>& units, const ShardPlan& plan) {
  std::vector<FlatArrays> all;
  std::vector<FlatArrays> last;  // of the group of equal units that ends with the previous unit
  std::size_t first = 0;         // first unit of that group
  const auto finish = [&](std::size_t end) {
    for (FlatArrays& arrays : last) {
      const std::string& from = units[first].name;
      const std::string& to = units[end - 1].name;
      arrays.num_units = static_cast<std::int64_t>(end - first);
      arrays.units = first + 1 == end ? from : from + " to " + to.substr(to.rfind('.'));
      all.push_back(std::move(arrays));
    }
  };
  for (std::size_t u = 0; u < units.size(); ++u) {
    std::vector<FlatArrays> arrays;
    for (const std::size_t g : plan.units[u]) arrays.push_back(DescribeGroup(plan.groups[g]));
    // The embedding has its own row.
    const bool continues =
        u > 1 && std::equal(arrays.begin(), arrays.end(), last.begin(), last.end(), AreAlike);
    if (continues) continue;
    finish(u);
    last = std::move(arrays);
    first = u;
  }
  finish(units.size());
  return all;
}

}  // namespace

Result<Explanation> Explain(const TrainConfig& config, int rank) {
  if (rank < 0 || rank >= config.mesh.world_size) {
    return Error(ErrorKind::kUsage, "the mesh has no such rank")
        .Expected(fmt::format("0 to {}", config.mesh.world_size - 1))
        .Actual(fmt::format("{}", rank));
  }
  const Topology topology(config.mesh, rank);
  const std::vector<UnitSpec> units = trainer::ListTrainedUnits(config, topology.expert());
  ShardPlan plan = trainer::PlanShards(units, topology, config.plan_options());
  std::uint64_t host_bytes = 0;
  const trainer::PlannedBytes bytes =
      trainer::PlanTrainingBytes(config.optimizer, plan, &host_bytes);
  CKPT_RETURN_IF_ERROR(trainer::CheckUnshardedBytes(config, plan));
  CKPT_ASSIGN_OR_RETURN(const trainer::RehearsedBytes model, trainer::RehearseStep(config, rank));
  const std::uint64_t other_bytes = model.tables + trainer::StepBytes(config, units, plan);
  std::vector<FlatArrays> arrays = DescribeArrays(units, plan);
  const CommSchedule schedule = PlanCommunication(config, plan);
  return Explanation{.config = config,
                     .rank = topology,
                     .plan = std::move(plan),
                     .bytes = bytes,
                     .host_bytes = host_bytes,
                     .activation_bytes = model.activations,
                     .other_bytes = other_bytes,
                     .arrays = std::move(arrays),
                     .schedule = schedule};
}

}  // namespace ckpt::train
