#include "tools/ckpt-train/experiment/internal/topologies.h"

#include <algorithm>
#include <set>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "core/base/quote.h"

namespace ckpt::train {
namespace {

using trainer::MeshConfig;
using trainer::OuterSharding;
using trainer::Sharding;

// A step's products have the shapes they have on the source's mesh, and its sums over ranks the
// same tree: that of eight ranks contains the trees over the ranks of an instance and over the
// instances.
constexpr Tolerance kBitEqual = {.bit_equal = true};
// Other batches meet at the experts, or ranks take several micro-batches: float32 rounds
// differently, and training carries that on.
constexpr Tolerance kRounding = {
    .first_loss = 1e-6, .first_norm = 1e-5, .tail_loss = 1e-3, .turned_loss = 2e-2};

}  // namespace

MeshConfig SourceMesh() { return {.world_size = 8, .expert_parallel = 2}; }

std::vector<ReshardCase> ReshardCases(ReshardSums sums) {
  const MeshConfig source = SourceMesh();
  const auto hybrid = [](int ranks, int instances, int experts) {
    return MeshConfig{.world_size = ranks,
                      .num_instances = instances,
                      .expert_parallel = experts,
                      .outer = OuterSharding::kOptim};
  };
  const auto sharded = [](Sharding sharding) {
    return MeshConfig{.world_size = 8, .expert_parallel = 2, .sharding = sharding};
  };
  std::vector<ReshardCase> cases = {
      {"a", "FSDP, as it was", source, kBitEqual, ""},
      {"b", "HSDP", {.world_size = 8, .num_instances = 2, .expert_parallel = 2}, kBitEqual, ""},
      {"c", "HFSDP", hybrid(8, 2, 2), kBitEqual, ""},
      {"d", "HFSDP, 4 instances", hybrid(8, 4, 2), kBitEqual, ""},
      {"e", "HFSDP, EP 4", hybrid(8, 2, 4), kRounding, ""},
      {"f", "FSDP, EP 1", {.world_size = 8}, kRounding, ""},
      {"g", "HFSDP, 4 ranks", hybrid(4, 2, 2), kRounding, ""},
      {"h", "FSDP, 2 ranks", {.world_size = 2, .expert_parallel = 2}, kRounding, ""},
      {"i", "one rank", {.world_size = 1}, kRounding, ""},
      {"j", "ZeRO-1", sharded(Sharding::kOptim), kBitEqual, ""},
      {"k", "DDP", sharded(Sharding::kNoShard), kBitEqual, ""},
      {"back", "FSDP, after (c)", source, kBitEqual, "c"},
  };
  for (ReshardCase& each : cases) {
    if (sums == ReshardSums::kCanonical) each.tolerance = kBitEqual;
    if (sums == ReshardSums::kTreeButNorm && each.name != "a") each.tolerance = kRounding;
  }
  return cases;
}

Result<std::vector<ReshardCase>> SelectCases(std::vector<ReshardCase> cases,
                                             std::span<const std::string> names) {
  std::set<std::string> wanted;
  std::vector<std::string> known;
  for (const ReshardCase& each : cases) known.push_back(each.name);
  for (const std::string& name : names) {
    const auto found = std::find(known.begin(), known.end(), name);
    if (found == known.end()) {
      return Error(ErrorKind::kUsage, "there is no topology " + Quote(name))
          .Expected(fmt::format("{}", fmt::join(known, ", ")));
    }
    wanted.insert(name);
    wanted.insert(cases[static_cast<std::size_t>(found - known.begin())].from);
  }
  if (!names.empty()) {
    std::erase_if(cases, [&](const ReshardCase& each) { return !wanted.contains(each.name); });
  }
  return cases;
}

std::string MeshText(const MeshConfig& mesh) {
  std::string text = fmt::format("{} rank{}", mesh.world_size, mesh.world_size == 1 ? "" : "s");
  if (mesh.num_instances > 1) text += fmt::format(", {} instances", mesh.num_instances);
  if (mesh.expert_parallel > 1) text += fmt::format(", EP {}", mesh.expert_parallel);
  return text;
}

layout::Configuration MeshSettings(const MeshConfig& mesh) {
  return {{"num_distributed_optimizer_instances", mesh.num_instances},
          {"expert_model_parallel_size", mesh.expert_parallel},
          {"data_parallel_sharding_strategy", std::string(trainer::ShardingName(mesh.sharding))},
          {"outer_dp_sharding_strategy", std::string(trainer::OuterShardingName(mesh.outer))}};
}

}  // namespace ckpt::train
