// Reads of other GPUs' memory by copy engines and kernels of the reading GPU.
#ifndef CKPT_TRAINER_DEVICE_CUDA_INTERNAL_CUDA_PEER_READER_H_
#define CKPT_TRAINER_DEVICE_CUDA_INTERNAL_CUDA_PEER_READER_H_

#include <memory>

#include "core/base/result.h"
#include "trainer/comm/host_group.h"
#include "trainer/device/peer/peer_reader.h"

namespace ckpt::trainer {

// Lets the calling thread's GPU read the memory of those of all ranks of `group`, threads of this
// process. Several ranks may have one GPU. Every rank calls it.
// Errors: kUnsupported (no path between two GPUs), kSystem, those of the group.
Result<std::unique_ptr<PeerReader>> MakeCudaPeerReader(HostGroup& group);

}  // namespace ckpt::trainer

#endif  // CKPT_TRAINER_DEVICE_CUDA_INTERNAL_CUDA_PEER_READER_H_
