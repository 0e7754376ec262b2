#include "trainer/params/mesh_comms.h"

#include <utility>

namespace ckpt::trainer {

void MeshComms::Leave() {
  for (const auto* collectives : {&gather_shard, &gather_expert_shard, &gather_outer, &reduce_shard,
                                  &reduce_expert_shard, &reduce_outer, &expert, &world}) {
    if (*collectives != nullptr) (*collectives)->Leave();
  }
}

Result<MeshComms> SplitWorld(HostGroup& world, const Topology& topology, Device& device) {
  const auto split = [&](Group group) -> Result<std::unique_ptr<Collectives>> {
    CKPT_ASSIGN_OR_RETURN(std::unique_ptr<HostGroup> ranks,
                          world.Split(topology.Color(group), topology.rank()));
    return device.MakeCollectives(std::move(ranks));
  };
  MeshComms comms;
  CKPT_ASSIGN_OR_RETURN(comms.gather_shard, split(Group::kShard));
  CKPT_ASSIGN_OR_RETURN(comms.gather_expert_shard, split(Group::kExpertShard));
  CKPT_ASSIGN_OR_RETURN(comms.gather_outer, split(Group::kOuter));
  CKPT_ASSIGN_OR_RETURN(comms.reduce_shard, split(Group::kShard));
  CKPT_ASSIGN_OR_RETURN(comms.reduce_expert_shard, split(Group::kExpertShard));
  CKPT_ASSIGN_OR_RETURN(comms.reduce_outer, split(Group::kOuter));
  CKPT_ASSIGN_OR_RETURN(comms.expert, split(Group::kExpert));
  CKPT_ASSIGN_OR_RETURN(comms.world, split(Group::kHybrid));
  return comms;
}

}  // namespace ckpt::trainer
