#include "trainer/params/shard_plan.h"

#include <algorithm>
#include <array>

#include "core/base/check.h"

namespace ckpt::trainer {
namespace {

constexpr std::uint64_t kSlotAlignmentBytes = 256;

std::uint64_t BytesOf(std::int64_t elems, DType dtype) {
  return static_cast<std::uint64_t>(elems) * ElementBytes(dtype);
}

// Part `index` of `count` equal parts of `range`.
FlatRange Part(const FlatRange& range, int index, int count) {
  const std::int64_t elems = range.elems / count;
  return {.begin = range.begin + index * elems, .elems = elems};
}

// Which arrays the mesh divides over the inner ranks, and whether replicas divide main weights
// again into slices.
struct Divided {
  bool weights = false;
  bool gradients = false;
  bool main = false;
  bool main_over_replicas = false;
};

Divided DividedBy(const MeshConfig& mesh) {
  return {.weights = mesh.sharding == Sharding::kOptimGradsParams,
          .gradients = mesh.sharding >= Sharding::kOptimGrads,
          .main = mesh.sharding >= Sharding::kOptim,
          .main_over_replicas = mesh.outer == OuterSharding::kOptim};
}

Group ShardGroup(ParamClass param_class) {
  return param_class == ParamClass::kExpert ? Group::kExpertShard : Group::kShard;
}

// The finest division of any array of such a group. A frozen group has only weights.
int NumShards(ParamClass param_class, bool trainable, const Topology& topology) {
  const Divided divided = DividedBy(topology.mesh());
  const bool divides_inner = divided.weights || (trainable && divided.main);
  const bool divides_outer = trainable && divided.main_over_replicas;
  return (divides_inner ? topology.Size(ShardGroup(param_class)) : 1) *
         (divides_outer ? topology.mesh().num_instances : 1);
}

// What a layout places as one tensor: a parameter, or the parameters of a stack, which follow each
// other as rows of the same size.
struct LaidOut {
  std::vector<std::size_t> params;  // indices in the unit
  Dims shape;
};

// `params` have one class, are all trained or all frozen, and are in the unit's order.
std::vector<LaidOut> JoinStacks(const UnitSpec& unit, std::span<const std::size_t> params) {
  std::vector<LaidOut> joined;
  for (const std::size_t index : params) {
    const ParamSpec& param = unit.params[index];
    const bool continues = !param.stack.empty() && !joined.empty() &&
                           unit.params[joined.back().params.front()].stack == param.stack;
    if (!continues) {
      joined.push_back({.params = {index}, .shape = param.shape});
      continue;
    }
    LaidOut& stack = joined.back();
    CKPT_CHECK(!param.shape.empty() && param.shape == unit.params[stack.params.front()].shape);
    stack.params.push_back(index);
    stack.shape.front() += param.shape.front();
  }
  return joined;
}

std::vector<Dims> ShapesOf(std::span<const LaidOut> tensors) {
  std::vector<Dims> shapes;
  shapes.reserve(tensors.size());
  for (const LaidOut& tensor : tensors) shapes.push_back(tensor.shape);
  return shapes;
}

// Turns a layout of stacks into the layout of their parameters.
FlatLayout TakeApart(const FlatLayout& layout, std::span<const LaidOut> tensors) {
  FlatLayout apart;
  apart.total_elems = layout.total_elems;
  apart.num_shards = layout.num_shards;
  for (std::size_t t = 0; t < tensors.size(); ++t) {
    const auto count = static_cast<std::int64_t>(tensors[t].params.size());
    const std::int64_t elems = layout.num_elems[t] / count;
    for (std::int64_t i = 0; i < count; ++i) {
      apart.offsets.push_back(layout.offsets[t] + i * elems);
      apart.row_elems.push_back(layout.row_elems[t]);
      apart.num_elems.push_back(elems);
    }
  }
  return apart;
}

GroupPlan PlanGroup(const UnitSpec& unit, int unit_index, std::vector<std::size_t> params,
                    const Topology& topology, const Precision& precision) {
  const ParamSpec& first = unit.params[params.front()];
  const Group shard_group = ShardGroup(first.param_class);

  GroupPlan group;
  group.unit = unit_index;
  group.param_class = first.param_class;
  group.trainable = first.trainable;
  group.inner = topology.Size(shard_group);
  group.outer = topology.mesh().num_instances;

  const std::vector<LaidOut> tensors = JoinStacks(unit, params);
  group.layout =
      TakeApart(LayOut(ShapesOf(tensors),
                       {.num_shards = NumShards(group.param_class, group.trainable, topology)}),
                tensors);
  group.params = std::move(params);

  group.main_is_weights = !group.trainable || precision.compute == precision.main_params;
  PlaceRank(topology, group);
  return group;
}

// Indices of the unit's parameters that may share a flat array: one class, all trained or all
// frozen.
std::vector<std::vector<std::size_t>> SplitUnit(const UnitSpec& unit, const Topology& topology) {
  std::vector<std::vector<std::size_t>> groups;
  constexpr std::array kClasses = {ParamClass::kDense, ParamClass::kExpert};
  for (const ParamClass param_class : kClasses) {
    for (const bool trainable : {true, false}) {
      std::vector<std::size_t> members;
      for (std::size_t i = 0; i < unit.params.size(); ++i) {
        const ParamSpec& param = unit.params[i];
        if (param.param_class == param_class && param.trainable == trainable) members.push_back(i);
      }
      const std::vector<LaidOut> tensors = JoinStacks(unit, members);
      const FlatLayoutOptions options = {.num_shards = NumShards(param_class, trainable, topology)};
      for (const std::vector<std::size_t>& together : GroupTensors(ShapesOf(tensors), options)) {
        std::vector<std::size_t>& params = groups.emplace_back();
        for (const std::size_t index : together) {
          params.insert(params.end(), tensors[index].params.begin(), tensors[index].params.end());
        }
      }
    }
  }
  return groups;
}

// Bytes that reductions after the last micro-batch send in a dtype other than that of the sums.
std::uint64_t WireBytes(const GroupPlan& group, const Precision& precision) {
  if (!group.trainable || precision.grad_comm == precision.main_grads) return 0;
  const bool reduces_late = group.outer > 1 || (!group.uses_bucket() && group.inner > 1);
  return reduces_late ? BytesOf(group.gradients.elems, precision.grad_comm) : 0;
}

// Whether the sum of gradients stays in its terms: those of two ranks, whose dtype is half as wide
// as a sum's. Memory is the same, and no kernel adds them beside the backward pass, which would
// wait for it. A second micro-batch needs the sum of the first.
bool StaysInTerms(const GroupPlan& group, const ShardPlanOptions& options) {
  return group.uses_bucket() && group.inner == 2 && group.outer == 1 &&
         options.num_micro_batches == 1 && options.precision.grad_comm == DType::kBfloat16 &&
         options.precision.main_grads == DType::kFloat32;
}

// The index of the landing of such groups in `landings`, where it is added if it is new.
std::size_t FindLanding(const Landing& landing, std::vector<Landing>& landings) {
  const auto found = std::ranges::find(landings, landing);
  const auto index = static_cast<std::size_t>(found - landings.begin());
  if (found == landings.end()) landings.push_back(landing);
  return index;
}

}  // namespace

void PlaceRank(const Topology& topology, GroupPlan& group) {
  const int inner_index = topology.Index(ShardGroup(group.param_class));
  const int outer_index = topology.outer();
  const Divided divided = DividedBy(topology.mesh());
  const FlatRange whole = {.begin = 0, .elems = group.layout.total_elems};
  const bool divides_inner = divided.weights || (group.trainable && divided.main);
  const bool divides_outer = group.trainable && divided.main_over_replicas;
  group.part = divides_inner ? Part(whole, inner_index, group.inner) : whole;
  group.weights = divided.weights ? group.part : whole;
  if (!group.trainable) {
    group.main = group.weights;
    group.counts_main = false;
    return;
  }
  group.gradients = divided.gradients ? group.part : whole;
  group.main = divided.main ? group.part : whole;
  if (divides_outer) group.main = Part(group.main, outer_index, group.outer);
  group.counts_main = (divided.main || inner_index == 0) && (divides_outer || outer_index == 0);
}

std::uint64_t SlotBytes(const GroupPlan& group, DType dtype) {
  const std::uint64_t bytes = BytesOf(group.layout.total_elems, dtype);
  return (bytes + kSlotAlignmentBytes - 1) / kSlotAlignmentBytes * kSlotAlignmentBytes;
}

ShardPlan PlanShards(std::span<const UnitSpec> units, const Topology& topology,
                     const ShardPlanOptions& options) {
  const Precision& precision = options.precision;
  ShardPlan plan = {.precision = precision, .slots = options.slots};
  for (std::size_t u = 0; u < units.size(); ++u) {
    std::vector<std::size_t>& unit_groups = plan.units.emplace_back();
    std::uint64_t weight_bytes = 0;
    std::uint64_t gradient_bytes = 0;
    for (std::vector<std::size_t>& params : SplitUnit(units[u], topology)) {
      GroupPlan group =
          PlanGroup(units[u], static_cast<int>(u), std::move(params), topology, precision);
      if (group.gathers()) weight_bytes += SlotBytes(group, precision.compute);
      if (StaysInTerms(group, options)) {
        group.landing = FindLanding({.param_class = group.param_class, .elems = group.part.elems},
                                    plan.landings);
      }
      if (group.uses_gradient_slot()) gradient_bytes += SlotBytes(group, precision.grad_comm);
      plan.wire_bytes = std::max(plan.wire_bytes, WireBytes(group, precision));
      unit_groups.push_back(plan.groups.size());
      plan.groups.push_back(std::move(group));
    }
    if (units[u].is_end) {
      plan.ends.push_back({.unit = static_cast<int>(u),
                           .weight_bytes = weight_bytes,
                           .gradient_bytes = gradient_bytes});
      continue;
    }
    plan.weight_slot_bytes = std::max(plan.weight_slot_bytes, weight_bytes);
    plan.gradient_slot_bytes = std::max(plan.gradient_slot_bytes, gradient_bytes);
  }
  return plan;
}

PlannedBytes PlanBytes(const ShardPlan& plan, int moments) {
  const Precision& precision = plan.precision;
  PlannedBytes bytes;
  for (const GroupPlan& group : plan.groups) {
    bytes.weights += BytesOf(group.weights.elems, precision.compute);
    if (!group.trainable) continue;
    if (!group.main_is_weights)
      bytes.main_weights += BytesOf(group.main.elems, precision.main_params);
    bytes.gradients += BytesOf(group.gradients.elems, precision.main_grads);
    bytes.optimizer +=
        static_cast<std::uint64_t>(moments) * BytesOf(group.main.elems, precision.main_params);
  }
  for (const Landing& landing : plan.landings) {
    bytes.gradients += BytesOf(landing.elems, precision.grad_comm);
  }
  bytes.slots = static_cast<std::uint64_t>(plan.slots.weight_slots) * plan.weight_slot_bytes +
                static_cast<std::uint64_t>(plan.slots.gradient_slots) * plan.gradient_slot_bytes +
                plan.end_weight_bytes() + plan.end_gradient_bytes() + plan.wire_bytes;
  return bytes;
}

}  // namespace ckpt::trainer
