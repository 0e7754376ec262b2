// Reads of other ranks' memory on host queues. It is the twin of what GPUs of one machine do, and
// has the same needs.
#ifndef CKPT_TRAINER_DEVICE_CPU_INTERNAL_HOST_PEER_READER_H_
#define CKPT_TRAINER_DEVICE_CPU_INTERNAL_HOST_PEER_READER_H_

#include <memory>

#include "trainer/device/peer/peer_reader.h"

namespace ckpt::trainer {

std::unique_ptr<PeerReader> MakeHostPeerReader();

}  // namespace ckpt::trainer

#endif  // CKPT_TRAINER_DEVICE_CPU_INTERNAL_HOST_PEER_READER_H_
