// GpuCollectives: how GPU ranks communicate.
#ifndef CKPT_TRAINER_DEVICE_GPU_COLLECTIVES_H_
#define CKPT_TRAINER_DEVICE_GPU_COLLECTIVES_H_

#include <cstdint>

namespace ckpt::trainer {

enum class GpuCollectives : std::uint8_t {
  kAuto,  // kPeer for ranks that are threads of one process, kNccl for processes
  kPeer,  // each reads and writes the others' memory; threads alone can
  kNccl,  // threads need a GPU each
};

}  // namespace ckpt::trainer

#endif  // CKPT_TRAINER_DEVICE_GPU_COLLECTIVES_H_
