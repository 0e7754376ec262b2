// Topology: which ranks share what, as pure arithmetic.
//
// With D ranks, N instances and P expert-parallel ranks, an instance has I = D/N ranks, J = I/P of
// which hold the same experts. Rank r has coordinates
//
//   r = o·I + i            o: instance (outer)           i: place within the instance (inner)
//   i = j·P + e            j: place among the ranks      e: which part of the experts it holds
//                             with the same experts
//
// so that r = (o·J + j)·P + e. Every group fixes some of (o, j, e) and runs over the others.
#ifndef CKPT_TRAINER_MESH_TOPOLOGY_H_
#define CKPT_TRAINER_MESH_TOPOLOGY_H_

#include <cstdint>
#include <string_view>
#include <vector>

#include "core/base/status.h"

namespace ckpt::trainer {

// What is divided over the ranks of a shard group (`data_parallel_sharding_strategy`).
enum class Sharding : std::uint8_t {
  kNoShard,           // nothing
  kOptim,             // main weights and optimizer state
  kOptimGrads,        // and gradients
  kOptimGradsParams,  // and compute weights
};
// What is divided over the replicas of a shard group (`outer_dp_sharding_strategy`).
enum class OuterSharding : std::uint8_t {
  kNoShard,  // nothing: HSDP, where there are several instances
  kOptim,    // main weights and optimizer state: HFSDP
};

// "optim_grads_params", …: Megatron's spelling.
[[nodiscard]] std::string_view ShardingName(Sharding sharding);
[[nodiscard]] std::string_view OuterShardingName(OuterSharding sharding);

struct MeshConfig {
  int world_size = 1;     // D: all ranks are data-parallel
  int num_instances = 1;  // N: replicas of the shard group (`num_distributed_optimizer_instances`)
  int expert_parallel = 1;  // P: ranks that share out the experts (`expert_model_parallel_size`)
  Sharding sharding = Sharding::kOptimGradsParams;
  OuterSharding outer = OuterSharding::kNoShard;
};

// Whether the mesh can be built: N divides D, P divides I (no expert group crosses instances) and
// the experts, and outer sharding has several instances of fully sharded ranks. `num_experts` is 0
// for a dense model.
//
// Errors: kUsage, one problem for every violation, each with a fix as its hint.
Status ValidateMesh(const MeshConfig& mesh, std::int64_t num_experts);

// The groups every rank is in.
enum class Group : std::uint8_t {
  kShard,   // the I ranks of an instance: dense shards
  kOuter,   // the N ranks of one place in every instance: replicas of dense and expert shards alike
  kHybrid,  // all D: dense slices where both are divided
  kExpert,  // the P ranks, neighbours, that share out the experts for each other's tokens
  kExpertShard,  // the J ranks of an instance with the same experts: expert shards; may be one rank
};
inline constexpr int kNumGroups = 5;
// "shard", "outer", …
[[nodiscard]] std::string_view GroupName(Group group);

// One rank's place.
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

  // Members in ascending order, this rank among them; `Index` is its place. Two ranks are in the
  // same group iff they list the same members.
  [[nodiscard]] std::vector<int> Members(Group group) const;
  [[nodiscard]] int Size(Group group) const { return RanksOf(group).size; }
  [[nodiscard]] int Index(Group group) const;
  // One number per distinct group of this kind, the color of a split: its first member.
  [[nodiscard]] int Color(Group group) const { return RanksOf(group).first; }

  // Which of the D/P expert slices this rank owns where shards are divided again over the instances. A slice is a part of the
  // inner shard, so the inner index is the slow one.
  [[nodiscard]] int ExpertSlice() const { return expert_inner() * mesh_.num_instances + outer(); }

 private:
  // first, first + stride, …: `size` ranks. Every group is one.
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
