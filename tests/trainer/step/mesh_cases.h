// Kinds of meshes that tests try all of.
#ifndef CKPT_TESTS_TRAINER_STEP_MESH_CASES_H_
#define CKPT_TESTS_TRAINER_STEP_MESH_CASES_H_

#include <ostream>
#include <string>
#include <vector>

#include "tests/trainer/model/dispatchers.h"
#include "trainer/comm/launcher.h"
#include "trainer/mesh/topology.h"
#include "trainer/step/train_config.h"

namespace ckpt::testing {

// A kind of mesh; expert parallelism, micro-batches and dispatcher are tried within.
struct MeshCase {
  int ranks = 1;
  trainer::Sharding sharding = trainer::Sharding::kOptimGradsParams;
  trainer::OuterSharding outer = trainer::OuterSharding::kNoShard;
  int instances = 1;
};

inline std::string NameOf(const MeshCase& c) {
  return std::string(trainer::ShardingName(c.sharding)) + "_outer_" +
         std::string(trainer::OuterShardingName(c.outer)) + "_" + std::to_string(c.instances) +
         "x" + std::to_string(c.ranks / c.instances);
}
inline void PrintTo(const MeshCase& c, std::ostream* os) { *os << NameOf(c); }

// Under a launcher, those of as many ranks as it started.
inline std::vector<MeshCase> AllMeshes() {
  std::vector<MeshCase> cases;
  const int launched = trainer::NumLaunchedProcesses();
  for (const int ranks : {1, 2, 4, 8}) {
    if (launched > 1 && ranks != launched) continue;
    for (const int instances : {1, 2, 4}) {
      for (const trainer::Sharding sharding :
           {trainer::Sharding::kNoShard, trainer::Sharding::kOptim, trainer::Sharding::kOptimGrads,
            trainer::Sharding::kOptimGradsParams}) {
        for (const trainer::OuterSharding outer :
             {trainer::OuterSharding::kNoShard, trainer::OuterSharding::kOptim}) {
          const trainer::MeshConfig mesh = {.world_size = ranks,
                                            .num_instances = instances,
                                            .sharding = sharding,
                                            .outer = outer};
          if (trainer::ValidateMesh(mesh, 8).ok())
            cases.push_back({ranks, sharding, outer, instances});
        }
      }
    }
  }
  return cases;
}

inline trainer::TrainConfig OnMesh(trainer::TrainConfig config, const MeshCase& c,
                                   int expert_parallel) {
  config.mesh = {.world_size = c.ranks,
                 .num_instances = c.instances,
                 .expert_parallel = expert_parallel,
                 .sharding = c.sharding,
                 .outer = c.outer};
  return config;
}

}  // namespace ckpt::testing

#endif  // CKPT_TESTS_TRAINER_STEP_MESH_CASES_H_
