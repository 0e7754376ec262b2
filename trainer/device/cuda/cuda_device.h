// One NVIDIA GPU as a Device. Queues are CUDA streams.
#ifndef CKPT_TRAINER_DEVICE_CUDA_CUDA_DEVICE_H_
#define CKPT_TRAINER_DEVICE_CUDA_CUDA_DEVICE_H_

#include <memory>

#include "core/base/result.h"
#include "trainer/device/device.h"
#include "trainer/device/gpu_collectives.h"

namespace ckpt::trainer {

// The number of GPUs that this process can use; 0 without a driver or without a GPU.
[[nodiscard]] int NumCudaDevices();

// Makes GPU `ordinal` the current one of the calling thread, which is the rank's thread. Its
// collectives of several ranks are those of `collectives`: NCCL's of threads need another GPU for
// each rank.
//
// Errors: kUnsupported (no such GPU, or one that this program has no code for), kSystem (the
// driver).
Result<std::unique_ptr<Device>> MakeCudaDevice(int ordinal,
                                               GpuCollectives collectives = GpuCollectives::kAuto);

}  // namespace ckpt::trainer

#endif  // CKPT_TRAINER_DEVICE_CUDA_CUDA_DEVICE_H_
