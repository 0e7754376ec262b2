// Collectives of ranks that are threads: each reads the others' memory from its own queue. It is the
// twin of what GPUs of one machine do, and has the same needs (docs/adr/0011).
#ifndef CKPT_TRAINER_DEVICE_CPU_INTERNAL_PEER_COLLECTIVES_H_
#define CKPT_TRAINER_DEVICE_CPU_INTERNAL_PEER_COLLECTIVES_H_

#include <memory>

#include "core/base/result.h"
#include "trainer/device/collectives.h"

namespace ckpt::trainer {

// Errors: kUnsupported (the ranks do not share memory), those of the group.
Result<std::unique_ptr<Collectives>> MakePeerCollectives(std::unique_ptr<HostGroup> group);

}  // namespace ckpt::trainer

#endif  // CKPT_TRAINER_DEVICE_CPU_INTERNAL_PEER_COLLECTIVES_H_
