#include "trainer/mesh/topology.h"

#include <string>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "core/base/check.h"

namespace ckpt::trainer {
namespace {

// "1, 2, 4 or 8"
std::string DivisorsOf(std::int64_t number) {
  std::vector<std::int64_t> divisors;
  for (std::int64_t d = 1; d <= number; ++d) {
    if (number % d == 0) divisors.push_back(d);
  }
  if (divisors.size() == 1) return "1";
  const std::int64_t last = divisors.back();
  divisors.pop_back();
  return fmt::format("{} or {}", fmt::join(divisors, ", "), last);
}

Status Violation(std::string_view message, const std::string& expected, const std::string& actual,
                 const std::string& hint) {
  return Error(ErrorKind::kUsage, message).Expected(expected).Actual(actual).Hint(hint);
}

Status CheckPositive(std::string_view name, int value) {
  if (value >= 1) return OkStatus();
  return Violation(fmt::format("{} is not positive", name), "at least 1", std::to_string(value),
                   fmt::format("set {} to 1 or more", name));
}

// Checks N and P against D. REQUIRES: all are positive.
Status CheckRanks(const MeshConfig& mesh, const MeshWords& words) {
  const int instances = mesh.num_instances;
  const int expert_parallel = mesh.expert_parallel;
  const bool instances_fit = mesh.world_size % instances == 0;
  const bool experts_fit = mesh.world_size % expert_parallel == 0;
  Status violations;
  if (!instances_fit) {
    violations.Add(Violation(fmt::format("{} does not divide the ranks", words.instances),
                             fmt::format("a divisor of {}", mesh.world_size),
                             std::to_string(instances), "choose " + DivisorsOf(mesh.world_size)));
  }
  if (!experts_fit) {
    violations.Add(Violation(fmt::format("{} does not divide the ranks", words.expert_parallel),
                             fmt::format("a divisor of {}", mesh.world_size),
                             std::to_string(expert_parallel),
                             "choose " + DivisorsOf(mesh.world_size)));
  }
  // Otherwise an expert group would contain ranks of the next instance.
  if (instances_fit && experts_fit && mesh.world_size / instances % expert_parallel != 0) {
    const int instance = mesh.world_size / instances;
    violations.Add(
        Violation(fmt::format("{} does not divide the ranks of an instance", words.expert_parallel),
                  fmt::format("a divisor of {} (= {} ranks / {} instances)", instance,
                              mesh.world_size, instances),
                  std::to_string(expert_parallel),
                  fmt::format("choose {} {}, or {} {}", words.expert_parallel, DivisorsOf(instance),
                              words.instances, DivisorsOf(mesh.world_size / expert_parallel))));
  }
  return violations;
}

Status CheckExperts(int expert_parallel, std::int64_t num_experts, const MeshWords& words) {
  if (num_experts == 0 && expert_parallel > 1) {
    return Violation(fmt::format("{} is set, but the model has no experts", words.expert_parallel),
                     "1", std::to_string(expert_parallel),
                     fmt::format("set {} to 1", words.expert_parallel));
  }
  if (num_experts % expert_parallel != 0) {
    return Violation(fmt::format("{} does not divide the experts", words.expert_parallel),
                     fmt::format("a divisor of {}", num_experts), std::to_string(expert_parallel),
                     "choose " + DivisorsOf(num_experts));
  }
  return OkStatus();
}

Status CheckOuter(const MeshConfig& mesh, const MeshWords& words) {
  if (mesh.outer == OuterSharding::kNoShard) return OkStatus();
  Status violations;
  if (mesh.num_instances == 1) {
    violations.Add(Violation("outer sharding needs several instances", "at least 2 instances", "1",
                             fmt::format("raise {}, or {}", words.instances, words.without_outer)));
  }
  if (mesh.sharding != Sharding::kOptimGradsParams) {
    const std::string wanted(ShardingName(Sharding::kOptimGradsParams));
    violations.Add(
        Violation("outer sharding needs fully sharded instances", wanted,
                  std::string(ShardingName(mesh.sharding)),
                  fmt::format("set {} to {}, or {}", words.sharding, wanted, words.without_outer)));
  }
  return violations;
}

}  // namespace

std::string_view ShardingName(Sharding sharding) {
  switch (sharding) {
    case Sharding::kNoShard:
      return "no_shard";
    case Sharding::kOptim:
      return "optim";
    case Sharding::kOptimGrads:
      return "optim_grads";
    case Sharding::kOptimGradsParams:
      return "optim_grads_params";
  }
  return "unknown";
}

std::string_view OuterShardingName(OuterSharding sharding) {
  switch (sharding) {
    case OuterSharding::kNoShard:
      return "no_shard";
    case OuterSharding::kOptim:
      return "optim";
  }
  return "unknown";
}

Status ValidateMesh(const MeshConfig& mesh, std::int64_t num_experts, const MeshWords& words) {
  Status violations = CheckPositive("world_size", mesh.world_size);
  violations.Add(CheckPositive(words.instances, mesh.num_instances));
  violations.Add(CheckPositive(words.expert_parallel, mesh.expert_parallel));
  if (violations.ok()) violations.Add(CheckRanks(mesh, words));
  if (mesh.expert_parallel >= 1) {
    violations.Add(CheckExperts(mesh.expert_parallel, num_experts, words));
  }
  violations.Add(CheckOuter(mesh, words));
  return violations;
}

std::string_view GroupName(Group group) {
  switch (group) {
    case Group::kShard:
      return "shard";
    case Group::kOuter:
      return "outer";
    case Group::kHybrid:
      return "hybrid";
    case Group::kExpert:
      return "expert";
    case Group::kExpertShard:
      return "expert_shard";
    case Group::kExpertHybrid:
      return "expert_hybrid";
  }
  return "unknown";
}

Topology::Topology(const MeshConfig& mesh, int rank) : mesh_(mesh), rank_(rank) {
  CKPT_CHECK(mesh.num_instances >= 1 && mesh.expert_parallel >= 1);
  CKPT_CHECK(mesh.world_size % (mesh.num_instances * mesh.expert_parallel) == 0);
  CKPT_CHECK(0 <= rank && rank < mesh.world_size);
}

std::vector<int> Topology::Members(Group group) const {
  const Progression ranks = RanksOf(group);
  std::vector<int> members(static_cast<std::size_t>(ranks.size));
  int next = ranks.first;
  for (int& member : members) {
    member = next;
    next += ranks.stride;
  }
  return members;
}

int Topology::Index(Group group) const {
  const Progression ranks = RanksOf(group);
  return (rank_ - ranks.first) / ranks.stride;
}

Topology::Progression Topology::RanksOf(Group group) const {
  const int all = mesh_.world_size;
  const int instance = Instance();
  const int parallel = mesh_.expert_parallel;
  switch (group) {
    case Group::kShard:
      return {outer() * instance, 1, instance};
    case Group::kOuter:
      return {inner(), instance, mesh_.num_instances};
    case Group::kHybrid:
      return {0, 1, all};
    case Group::kExpert:
      return {rank_ - expert(), 1, parallel};
    case Group::kExpertShard:
      return {outer() * instance + expert(), parallel, instance / parallel};
    case Group::kExpertHybrid:
      return {expert(), parallel, all / parallel};
  }
  CKPT_CHECK(false);
}

}  // namespace ckpt::trainer
