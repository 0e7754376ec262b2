// MeshComms: the communicators of one rank's groups.
#ifndef CKPT_TRAINER_PARAMS_MESH_COMMS_H_
#define CKPT_TRAINER_PARAMS_MESH_COMMS_H_

#include <array>
#include <memory>

#include "core/base/result.h"
#include "trainer/comm/communicator.h"
#include "trainer/mesh/topology.h"

namespace ckpt::trainer {

// A communicator serves one queue at a time, so gathering, reducing and computing have their own.
// An all-gather can run while a reduce-scatter of the same ranks is in flight.
struct MeshComms {
  // For weights: shard groups and replicas.
  std::unique_ptr<Communicator> gather_shard;
  std::unique_ptr<Communicator> gather_expert_shard;
  std::unique_ptr<Communicator> gather_outer;
  // For gradients.
  std::unique_ptr<Communicator> reduce_shard;
  std::unique_ptr<Communicator> reduce_expert_shard;
  std::unique_ptr<Communicator> reduce_outer;
  // For the compute queue: sending tokens to experts, and sums over all ranks.
  std::unique_ptr<Communicator> expert;
  std::unique_ptr<Communicator> world;
};

// Every rank of `world` calls it. Errors: kCancelled (a rank is gone).
Result<MeshComms> SplitWorld(Communicator& world, const Topology& topology);

}  // namespace ckpt::trainer

#endif  // CKPT_TRAINER_PARAMS_MESH_COMMS_H_
