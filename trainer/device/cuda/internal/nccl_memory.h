// NcclMemory: memory that a communicator of NCCL knows before it sends or receives there.
#ifndef CKPT_TRAINER_DEVICE_CUDA_INTERNAL_NCCL_MEMORY_H_
#define CKPT_TRAINER_DEVICE_CUDA_INTERNAL_NCCL_MEMORY_H_

#include <cstddef>
#include <cstdint>
#include <vector>

#include <nccl.h>

#include "core/base/result.h"
#include "trainer/device/cuda/internal/nccl_library.h"
#include "trainer/device/device.h"
#include "trainer/device/queue.h"

namespace ckpt::trainer {

// Between GPUs of one machine NCCL copies from and to known memory directly, and through buffers of
// its own otherwise.
//
// Thread-safety: the rank's thread.
class NcclMemory {
 public:
  // All outlive it.
  NcclMemory(const NcclLibrary& nccl, ncclComm_t communicator, Device& device)
      : nccl_(nccl), communicator_(communicator), device_(device) {}
  ~NcclMemory() { Forget(); }
  NcclMemory(const NcclMemory&) = delete;
  NcclMemory& operator=(const NcclMemory&) = delete;

  // Errors: kSystem.
  Status Register(std::byte* data, std::uint64_t size_bytes);
  // Registered memory of at least `size_bytes`, which the next call may hand out again. It grows
  // when a call needs more than any before it, which happens in the first step; then the call waits
  // for `queue`. Errors: kSystem, those of the queue.
  Result<std::byte*> Scratch(Queue& queue, std::uint64_t size_bytes);
  // No call is under way. Afterwards registered memory may be freed.
  void Forget();

 private:
  const NcclLibrary& nccl_;
  const ncclComm_t communicator_;
  Device& device_;
  std::vector<void*> handles_;
  Buffer scratch_;
  void* scratch_handle_ = nullptr;
};

}  // namespace ckpt::trainer

#endif  // CKPT_TRAINER_DEVICE_CUDA_INTERNAL_NCCL_MEMORY_H_
