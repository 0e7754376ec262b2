// What a plan promises whatever the mesh: where stacks lie.
#include "trainer/params/shard_plan.h"

#include <cstdint>
#include <string>
#include <vector>

#include <gmock/gmock.h>

#include "trainer/mesh/topology.h"

namespace ckpt::trainer {
namespace {

constexpr int kExperts = 6;
constexpr Precision kPrecision = {};

ParamSpec Matrix(std::string name, std::int64_t rows, std::int64_t columns, std::string stack) {
  ParamSpec param = {.name = std::move(name), .shape = {rows, columns}, .init = {}};
  param.param_class = stack.empty() ? ParamClass::kDense : ParamClass::kExpert;
  param.stack = std::move(stack);
  return param;
}

// Experts of sizes that no alignment divides, and dense parameters about them.
UnitSpec ExpertUnit(std::int64_t hidden, std::int64_t ffn) {
  UnitSpec unit = {.name = "layer", .params = {}};
  unit.params.push_back({.name = "norm", .shape = {hidden}, .init = {}});
  unit.params.push_back(Matrix("router", kExperts, hidden, ""));
  for (int i = 0; i < kExperts; ++i) {
    unit.params.push_back(Matrix("fc1_" + std::to_string(i), 2 * ffn, hidden, "fc1"));
  }
  for (int i = 0; i < kExperts; ++i) {
    unit.params.push_back(Matrix("fc2_" + std::to_string(i), hidden, ffn, "fc2"));
  }
  return unit;
}

// Of every stack, the parameters of a group lie behind one another; each is found in one group.
void ExpectStacksWithoutGaps(const UnitSpec& unit, const ShardPlan& plan) {
  std::vector<int> found(unit.params.size());
  for (const GroupPlan& group : plan.groups) {
    for (std::size_t i = 0; i < group.params.size(); ++i) {
      ++found[group.params[i]];
      if (i == 0) continue;
      const std::string& stack = unit.params[group.params[i]].stack;
      if (stack.empty() || stack != unit.params[group.params[i - 1]].stack) continue;
      EXPECT_EQ(group.layout.offsets[i],
                group.layout.offsets[i - 1] + group.layout.num_elems[i - 1])
          << unit.params[group.params[i]].name;
    }
  }
  EXPECT_THAT(found, ::testing::Each(1));
}

// Groups that hold parameters of `stack`.
int CountGroups(const UnitSpec& unit, const ShardPlan& plan, const std::string& stack) {
  int count = 0;
  for (const GroupPlan& group : plan.groups) {
    for (const std::size_t param : group.params) {
      if (unit.params[param].stack != stack) continue;
      ++count;
      break;
    }
  }
  return count;
}

TEST(ShardPlanTest, StacksLieWithoutGapsOnEveryMesh) {
  for (const std::int64_t hidden : {5, 20, 64, 96}) {
    for (const std::int64_t ffn : {3, 9, 64}) {
      for (const int ranks : {1, 2, 3, 4, 8}) {
        for (const Sharding sharding : {Sharding::kNoShard, Sharding::kOptimGradsParams}) {
          SCOPED_TRACE(::testing::Message() << hidden << ", " << ffn << ", " << ranks << " ranks");
          const std::vector<UnitSpec> units = {{.name = "root", .params = {}},
                                               ExpertUnit(hidden, ffn)};
          const Topology topology({.world_size = ranks, .sharding = sharding}, ranks - 1);
          const ShardPlan plan = PlanShards(units, topology, {.precision = kPrecision});
          for (const std::string stack : {"fc1", "fc2"}) {
            EXPECT_EQ(CountGroups(units[1], plan, stack), 1);
          }
          ExpectStacksWithoutGaps(units[1], plan);
        }
      }
    }
  }
}

TEST(ShardPlanTest, FrozenMembersOfAStackLieApartAndTheOthersTogether) {
  std::vector<UnitSpec> units = {{.name = "root", .params = {}}, ExpertUnit(20, 9)};
  for (ParamSpec& param : units[1].params) {
    if (param.name == "fc1_2" || param.name == "fc1_5") param.trainable = false;
  }
  const Topology topology({.world_size = 2}, 0);
  const ShardPlan plan = PlanShards(units, topology, {.precision = kPrecision});
  EXPECT_EQ(CountGroups(units[1], plan, "fc1"), 2);
  EXPECT_EQ(CountGroups(units[1], plan, "fc2"), 1);
  ExpectStacksWithoutGaps(units[1], plan);
}

}  // namespace
}  // namespace ckpt::trainer
