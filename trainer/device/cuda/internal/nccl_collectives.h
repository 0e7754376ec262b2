// Collectives of GPUs by NCCL: of ranks that are processes, of one machine or of several, or
// threads of one process with a GPU each.
#ifndef CKPT_TRAINER_DEVICE_CUDA_INTERNAL_NCCL_COLLECTIVES_H_
#define CKPT_TRAINER_DEVICE_CUDA_INTERNAL_NCCL_COLLECTIVES_H_

#include <memory>

#include "core/base/result.h"
#include "trainer/comm/host_group.h"
#include "trainer/device/collectives.h"
#include "trainer/device/cuda/internal/nccl_library.h"
#include "trainer/device/cuda/internal/nccl_watchdog.h"
#include "trainer/device/device.h"

namespace ckpt::trainer {

// A communicator of NCCL of its own, so that groups do not wait for each other. NCCL moves bytes,
// and sums are formed where they are kept, in the order that Collectives documents: so they have
// the bits of ranks that read each other's memory, and bfloat16 is added in float32.
//
// `nccl`, `device` and `watchdog` outlive the collectives. Every rank calls it. Errors: kSystem
// (NCCL failed), those of the group.
Result<std::unique_ptr<Collectives>> MakeNcclCollectives(const NcclLibrary& nccl,
                                                         std::unique_ptr<HostGroup> group,
                                                         Device& device, NcclWatchdog& watchdog);

}  // namespace ckpt::trainer

#endif  // CKPT_TRAINER_DEVICE_CUDA_INTERNAL_NCCL_COLLECTIVES_H_
