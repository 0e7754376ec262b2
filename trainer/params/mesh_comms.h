// MeshComms: the collectives of one rank's groups.
#ifndef CKPT_TRAINER_PARAMS_MESH_COMMS_H_
#define CKPT_TRAINER_PARAMS_MESH_COMMS_H_

#include <memory>

#include "core/base/result.h"
#include "trainer/comm/host_group.h"
#include "trainer/device/collectives.h"
#include "trainer/device/device.h"
#include "trainer/mesh/topology.h"

namespace ckpt::trainer {

// Collectives serve one queue at a time, so gathering, reducing and computing have their own.
// An all-gather can run while a reduce-scatter of the same ranks is in flight.
struct MeshComms {
  // For weights: shard groups and replicas.
  std::unique_ptr<Collectives> gather_shard;
  std::unique_ptr<Collectives> gather_expert_shard;
  std::unique_ptr<Collectives> gather_outer;
  // For gradients.
  std::unique_ptr<Collectives> reduce_shard;
  std::unique_ptr<Collectives> reduce_expert_shard;
  std::unique_ptr<Collectives> reduce_outer;
  // For the compute queue: sending tokens to experts, and sums over all ranks.
  std::unique_ptr<Collectives> expert;
  std::unique_ptr<Collectives> world;

  // Call it before memory is freed that they have used, after the queues were synchronised.
  void Leave();
};

// Collectives of `device`. Every rank of `world` calls it. Errors: kCancelled (a rank is gone),
// those of Device::MakeCollectives.
Result<MeshComms> SplitWorld(HostGroup& world, const Topology& topology, Device& device);

}  // namespace ckpt::trainer

#endif  // CKPT_TRAINER_PARAMS_MESH_COMMS_H_
