// Collectives of ranks that are threads of one process: each reads the others' memory from its own
// queue (docs/adr/0011). One protocol; a device brings the reads.
#ifndef CKPT_TRAINER_DEVICE_PEER_PEER_COLLECTIVES_H_
#define CKPT_TRAINER_DEVICE_PEER_PEER_COLLECTIVES_H_

#include <memory>

#include "core/base/result.h"
#include "trainer/comm/host_group.h"
#include "trainer/device/collectives.h"
#include "trainer/device/peer/peer_reader.h"

namespace ckpt::trainer {

// A group of one rank may be of any world. Errors: kUnsupported (the ranks do not share memory),
// those of the group.
Result<std::unique_ptr<Collectives>> MakePeerCollectives(std::unique_ptr<HostGroup> group,
                                                         std::unique_ptr<PeerReader> reader);

}  // namespace ckpt::trainer

#endif  // CKPT_TRAINER_DEVICE_PEER_PEER_COLLECTIVES_H_
