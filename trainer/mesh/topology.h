// Topology: which ranks form which groups. Pure arithmetic.
//
// There are D ranks, N instances and P expert-parallel ranks. An instance has I = D/N ranks, and J
// = I/P of them hold the same experts. Rank r has the coordinates
//
//   r = o·I + i            o: instance (outer)           i: place within the instance (inner)
//   i = j·P + e            j: place among the ranks      e: which part of the experts it holds
//                             with the same experts
//
// so r = (o·J + j)·P + e. Every group fixes some of (o, j, e) and runs over the others.
#ifndef CKPT_TRAINER_MESH_TOPOLOGY_H_
#define CKPT_TRAINER_MESH_TOPOLOGY_H_

#include <cstdint>
#include <string_view>
#include <vector>

#include "core/base/status.h"

namespace ckpt::trainer {

// What the ranks of a shard group divide among them (`data_parallel_sharding_strategy`).
enum class Sharding : std::uint8_t {
  kNoShard,           // nothing
  kOptim,             // main weights and optimizer state
  kOptimGrads,        // these and gradients
  kOptimGradsParams,  // these and compute weights
};
// What the replicas of a shard group divide again among them (`outer_dp_sharding_strategy`).
enum class OuterSharding : std::uint8_t {
  kNoShard,  // nothing; with several instances this is HSDP
  kOptim,    // main weights and optimizer state: HFSDP
};

// "optim_grads_params", …, as Megatron spells them.
[[nodiscard]] std::string_view ShardingName(Sharding sharding);
[[nodiscard]] std::string_view OuterShardingName(OuterSharding sharding);

struct MeshConfig {
  int world_size = 1;     // D: all ranks are data-parallel
  int num_instances = 1;  // N: replicas of the shard group (`num_distributed_optimizer_instances`)
  int expert_parallel = 1;  // P: ranks that divide the experts (`expert_model_parallel_size`)
  Sharding sharding = Sharding::kOptimGradsParams;
  OuterSharding outer = OuterSharding::kNoShard;
};

// What errors call the parts of a mesh: by default as the trainer's settings do.
struct MeshWords {
  std::string_view instances = "num_distributed_optimizer_instances";
  std::string_view expert_parallel = "expert_model_parallel_size";
  std::string_view sharding = "data_parallel_sharding_strategy";
  // What makes instances not divide again.
  std::string_view without_outer = "set outer_dp_sharding_strategy to no_shard";
};

// OK if the mesh can be built: N divides D, P divides the experts and I (an expert group must not
// cross instances), and outer sharding has several instances of fully sharded ranks. `num_experts`
// is 0 for a dense model.
//
// Errors: kUsage, one error for every violation, each with a hint that fixes it.
Status ValidateMesh(const MeshConfig& mesh, std::int64_t num_experts, const MeshWords& words = {});

// The groups of every rank.
enum class Group : std::uint8_t {
  kShard,         // the I ranks of an instance, which divide the dense parameters
  kOuter,         // the N ranks of one place in every instance: replicas of dense and expert shards
  kHybrid,        // all D ranks: dense slices if instances divide the shards again
  kExpert,        // the P neighbours that divide the experts and send each other tokens
  kExpertShard,   // the J ranks of an instance with the same experts; may be one rank
  kExpertHybrid,  // all D/P ranks with the same experts: as kHybrid, for expert slices
};
inline constexpr int kNumGroups = 6;
// "shard", "outer", …
[[nodiscard]] std::string_view GroupName(Group group);

// The place of one rank.
class Topology {
 public:
  // REQUIRES: ValidateMesh accepts the mesh; 0 <= rank < world_size.
  Topology(const MeshConfig& mesh, int rank);

  [[nodiscard]] const MeshConfig& mesh() const { return mesh_; }
  [[nodiscard]] int rank() const { return rank_; }
  [[nodiscard]] int outer() const { return rank_ / Instance(); }                      // o
  [[nodiscard]] int inner() const { return rank_ % Instance(); }                      // i
  [[nodiscard]] int expert() const { return rank_ % mesh_.expert_parallel; }          // e
  [[nodiscard]] int expert_inner() const { return inner() / mesh_.expert_parallel; }  // j

  // Members in ascending order, with this rank among them; `Index` is its place. Two ranks are in
  // the same group iff they list the same members.
  [[nodiscard]] std::vector<int> Members(Group group) const;
  [[nodiscard]] int Size(Group group) const { return RanksOf(group).size; }
  [[nodiscard]] int Index(Group group) const;
  // The first member, which identifies the group among those of its kind: the color of a split.
  [[nodiscard]] int Color(Group group) const { return RanksOf(group).first; }

 private:
  // The ranks first, first + stride, …; `size` of them. Every group has this form.
  struct Progression {
    int first;
    int stride;
    int size;
  };

  [[nodiscard]] int Instance() const { return mesh_.world_size / mesh_.num_instances; }
  [[nodiscard]] Progression RanksOf(Group group) const;

  MeshConfig mesh_;
  int rank_;
};

}  // namespace ckpt::trainer

#endif  // CKPT_TRAINER_MESH_TOPOLOGY_H_
