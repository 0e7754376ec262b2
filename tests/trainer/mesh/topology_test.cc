#include "trainer/mesh/topology.h"

#include <map>
#include <ostream>
#include <set>
#include <string>

#include <gmock/gmock.h>

#include "tests/testing/matchers.h"

namespace ckpt::trainer {
namespace {

using ::testing::ElementsAre;
using testing::FailsWith;
using ::testing::HasSubstr;
using testing::IsOk;

constexpr int kMaxRanks = 64;
constexpr Group kGroups[] = {Group::kShard,  Group::kOuter,       Group::kHybrid,
                             Group::kExpert, Group::kExpertShard, Group::kExpertHybrid};
static_assert(std::size(kGroups) == kNumGroups);

// Calls `check` with every legal mesh of up to kMaxRanks ranks.
template <typename Check>
int ForEveryMesh(const Check& check) {
  int count = 0;
  for (int ranks = 1; ranks <= kMaxRanks; ++ranks) {
    for (int instances = 1; instances <= ranks; ++instances) {
      for (int parallel = 1; parallel <= ranks; ++parallel) {
        const MeshConfig mesh = {
            .world_size = ranks, .num_instances = instances, .expert_parallel = parallel};
        if (!ValidateMesh(mesh, parallel).ok()) continue;
        SCOPED_TRACE(::testing::Message()
                     << "D=" << ranks << " N=" << instances << " P=" << parallel);
        check(mesh);
        ++count;
      }
    }
  }
  return count;
}

// Coordinates by counting up: e fastest, then j, then o.
struct Coordinates {
  int outer = 0;
  int expert_inner = 0;
  int expert = 0;
};

std::vector<Coordinates> CountUp(const MeshConfig& mesh) {
  const int per_instance = mesh.world_size / mesh.num_instances / mesh.expert_parallel;
  std::vector<Coordinates> all;
  for (int o = 0; o < mesh.num_instances; ++o) {
    for (int j = 0; j < per_instance; ++j) {
      for (int e = 0; e < mesh.expert_parallel; ++e) all.push_back({o, j, e});
    }
  }
  return all;
}

// Whether two ranks belong together, by what the group is for.
bool Together(Group group, const Coordinates& a, const Coordinates& b) {
  switch (group) {
    case Group::kShard:
      return a.outer == b.outer;
    case Group::kOuter:
      return a.expert_inner == b.expert_inner && a.expert == b.expert;
    case Group::kHybrid:
      return true;
    case Group::kExpert:
      return a.outer == b.outer && a.expert_inner == b.expert_inner;
    case Group::kExpertShard:
      return a.outer == b.outer && a.expert == b.expert;
    case Group::kExpertHybrid:
      return a.expert == b.expert;
  }
  return false;
}

TEST(TopologyTest, CoordinatesAndGroupsMatchBruteForceOnEveryMesh) {
  const int meshes = ForEveryMesh([](const MeshConfig& mesh) {
    const std::vector<Coordinates> all = CountUp(mesh);
    for (int rank = 0; rank < mesh.world_size; ++rank) {
      const Topology topology(mesh, rank);
      const Coordinates& at = all[static_cast<std::size_t>(rank)];
      ASSERT_EQ(topology.outer(), at.outer);
      ASSERT_EQ(topology.expert_inner(), at.expert_inner);
      ASSERT_EQ(topology.expert(), at.expert);
      ASSERT_EQ(topology.inner(), at.expert_inner * mesh.expert_parallel + at.expert);
      for (const Group group : kGroups) {
        std::vector<int> members;
        for (int other = 0; other < mesh.world_size; ++other) {
          if (Together(group, at, all[static_cast<std::size_t>(other)])) members.push_back(other);
        }
        ASSERT_EQ(topology.Members(group), members) << GroupName(group) << " of rank " << rank;
        ASSERT_EQ(topology.Size(group), static_cast<int>(members.size()));
        ASSERT_EQ(members[static_cast<std::size_t>(topology.Index(group))], rank);
      }
    }
  });
  // Σ over D ≤ 64 of the pairs (N, P) with N·P | D.
  EXPECT_EQ(meshes, 796);
}

TEST(TopologyTest, OneColorPerDistinctGroup) {
  ForEveryMesh([](const MeshConfig& mesh) {
    for (const Group group : kGroups) {
      std::map<int, std::vector<int>> members_of;
      std::set<std::vector<int>> distinct;
      for (int rank = 0; rank < mesh.world_size; ++rank) {
        const Topology topology(mesh, rank);
        const std::vector<int> members = topology.Members(group);
        const auto [it, added] = members_of.try_emplace(topology.Color(group), members);
        ASSERT_EQ(it->second, members) << GroupName(group);
        distinct.insert(members);
      }
      ASSERT_EQ(members_of.size(), distinct.size()) << GroupName(group);
    }
  });
}

TEST(TopologyTest, ExpertGroupsStayWithinAnInstance) {
  ForEveryMesh([](const MeshConfig& mesh) {
    for (int rank = 0; rank < mesh.world_size; ++rank) {
      for (const int member : Topology(mesh, rank).Members(Group::kExpert)) {
        ASSERT_EQ(Topology(mesh, member).outer(), Topology(mesh, rank).outer());
      }
    }
  });
}

// Which of the D/P slices of its experts a rank owns if instances divide shards again. A shard is
// cut into N slices, shards in order of the inner index: slice o of shard i is number i·N + o.
int ExpertSlice(const Topology& topology) {
  return topology.Index(Group::kExpertShard) * topology.Size(Group::kOuter) +
         topology.Index(Group::kOuter);
}

TEST(TopologyTest, SlicesOfAllRanksCoverTheFlatArrayOnce) {
  ForEveryMesh([](const MeshConfig& mesh) {
    std::map<int, std::vector<int>> expert;
    for (int rank = 0; rank < mesh.world_size; ++rank) {
      const Topology topology(mesh, rank);
      expert[topology.expert()].push_back(ExpertSlice(topology));
    }
    const auto expect_each_once = [](std::vector<int> slices) {
      std::sort(slices.begin(), slices.end());
      for (std::size_t s = 0; s < slices.size(); ++s) ASSERT_EQ(slices[s], static_cast<int>(s));
    };
    for (const auto& [part, slices] : expert) expect_each_once(slices);
  });
}

// "01·23": the distinct groups in order of their first member.
std::string Draw(const MeshConfig& mesh, Group group) {
  std::string drawn;
  std::set<int> seen;
  for (int rank = 0; rank < mesh.world_size; ++rank) {
    const Topology topology(mesh, rank);
    if (!seen.insert(topology.Color(group)).second) continue;
    if (!drawn.empty()) drawn += "·";
    for (const int member : topology.Members(group)) drawn += std::to_string(member);
  }
  return drawn;
}

struct WorkedMesh {
  const char* name;
  int world_size;
  int num_instances;
  int expert_parallel;
  const char* shard;
  const char* outer;
  const char* expert;
  const char* expert_shard;
  const char* expert_hybrid;
  const char* expert_slices;
};
void PrintTo(const WorkedMesh& mesh, std::ostream* os) { *os << mesh.name; }

class WorkedMeshTest : public ::testing::TestWithParam<WorkedMesh> {};

TEST_P(WorkedMeshTest, GroupsAndSlicesAreThoseWorkedByHand) {
  const WorkedMesh& want = GetParam();
  const MeshConfig mesh = {.world_size = want.world_size,
                           .num_instances = want.num_instances,
                           .expert_parallel = want.expert_parallel};
  EXPECT_EQ(Draw(mesh, Group::kShard), want.shard);
  EXPECT_EQ(Draw(mesh, Group::kOuter), want.outer);
  EXPECT_EQ(Draw(mesh, Group::kExpert), want.expert);
  EXPECT_EQ(Draw(mesh, Group::kExpertShard), want.expert_shard);
  EXPECT_EQ(Draw(mesh, Group::kExpertHybrid), want.expert_hybrid);
  std::string expert;
  for (int rank = 0; rank < mesh.world_size; ++rank) {
    expert += std::to_string(ExpertSlice(Topology(mesh, rank)));
  }
  EXPECT_EQ(expert, want.expert_slices);
}

INSTANTIATE_TEST_SUITE_P(
    , WorkedMeshTest,
    ::testing::Values(WorkedMesh{"D4_N2_P2", 4, 2, 2, "01·23", "02·13", "01·23", "0·1·2·3", "02·13",
                                 "0011"},
                      WorkedMesh{"D8_N2_P2", 8, 2, 2, "0123·4567", "04·15·26·37", "01·23·45·67",
                                 "02·13·46·57", "0246·1357", "00221133"},
                      WorkedMesh{"D8_N2_P4", 8, 2, 4, "0123·4567", "04·15·26·37", "0123·4567",
                                 "0·1·2·3·4·5·6·7", "04·15·26·37", "00001111"},
                      WorkedMesh{"D8_N4_P2", 8, 4, 2, "01·23·45·67", "0246·1357", "01·23·45·67",
                                 "0·1·2·3·4·5·6·7", "0246·1357", "00112233"}),
    [](const auto& test) { return std::string(test.param.name); });

TEST(ValidateMeshTest, AcceptsExactlyTheMeshesWhoseSizesDivide) {
  for (int ranks = 1; ranks <= 24; ++ranks) {
    for (int instances = 1; instances <= 25; ++instances) {
      for (int parallel = 1; parallel <= 25; ++parallel) {
        for (const int experts : {0, 1, 6, 8, 24}) {
          const MeshConfig mesh = {
              .world_size = ranks, .num_instances = instances, .expert_parallel = parallel};
          const bool legal = ranks % (instances * parallel) == 0 &&
                             (experts == 0 ? parallel == 1 : experts % parallel == 0);
          ASSERT_EQ(ValidateMesh(mesh, experts).ok(), legal)
              << "D=" << ranks << " N=" << instances << " P=" << parallel << " E=" << experts;
        }
      }
    }
  }
}

TEST(ValidateMeshTest, OuterShardingNeedsSeveralFullyShardedInstances) {
  const MeshConfig legal = {.world_size = 4, .num_instances = 2, .outer = OuterSharding::kOptim};
  EXPECT_THAT(ValidateMesh(legal, 0), IsOk());
  MeshConfig one_instance = legal;
  one_instance.num_instances = 1;
  EXPECT_THAT(ValidateMesh(one_instance, 0), FailsWith(ErrorKind::kUsage));
  for (const Sharding sharding : {Sharding::kNoShard, Sharding::kOptim, Sharding::kOptimGrads}) {
    MeshConfig partly = legal;
    partly.sharding = sharding;
    EXPECT_THAT(ValidateMesh(partly, 0), FailsWith(ErrorKind::kUsage)) << ShardingName(sharding);
  }
}

TEST(ValidateMeshTest, ReportsEveryViolationWithAFix) {
  const MeshConfig mesh = {.world_size = 8,
                           .num_instances = 3,
                           .expert_parallel = 5,
                           .sharding = Sharding::kOptim,
                           .outer = OuterSharding::kOptim};
  const Status status = ValidateMesh(mesh, 6);
  std::vector<std::string> messages;
  for (const Problem& problem : status.problems()) {
    messages.push_back(problem.message);
    EXPECT_FALSE(problem.hint.empty()) << problem.message;
  }
  EXPECT_THAT(messages, ElementsAre("num_distributed_optimizer_instances does not divide the ranks",
                                    "expert_model_parallel_size does not divide the ranks",
                                    "expert_model_parallel_size does not divide the experts",
                                    "outer sharding needs fully sharded instances"));
  EXPECT_EQ(status.problems()[0].hint, "choose 1, 2, 4 or 8");
  EXPECT_EQ(status.problems()[2].hint, "choose 1, 2, 3 or 6");
}

TEST(ValidateMeshTest, AnExpertGroupMayNotCrossInstances) {
  const MeshConfig mesh = {.world_size = 8, .num_instances = 4, .expert_parallel = 4};
  const Status status = ValidateMesh(mesh, 8);
  ASSERT_THAT(status, FailsWith(ErrorKind::kUsage));
  ASSERT_EQ(status.problems().size(), 1U);
  EXPECT_THAT(status.first().hint, HasSubstr("expert_model_parallel_size 1 or 2"));
  EXPECT_THAT(status.first().hint, HasSubstr("num_distributed_optimizer_instances 1 or 2"));
}

TEST(ValidateMeshTest, SizesBelowOneAreReportedTogether) {
  const Status status =
      ValidateMesh({.world_size = 0, .num_instances = -1, .expert_parallel = 0}, 8);
  EXPECT_THAT(status, FailsWith(ErrorKind::kUsage));
  EXPECT_EQ(status.problems().size(), 3U);
}

}  // namespace
}  // namespace ckpt::trainer
