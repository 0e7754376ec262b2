#include "trainer/device/cuda/internal/nccl_memory.h"

#include <utility>

namespace ckpt::trainer {

Status NcclMemory::Register(std::byte* data, std::uint64_t size_bytes) {
  if (size_bytes == 0) return OkStatus();
  void* handle = nullptr;
  CKPT_RETURN_IF_ERROR(
      nccl_.StatusOf(nccl_.register_memory(communicator_, data, size_bytes, &handle),
                     "ncclCommRegister", communicator_));
  handles_.push_back(handle);
  return OkStatus();
}

Result<std::byte*> NcclMemory::Scratch(Queue& queue, std::uint64_t size_bytes) {
  if (scratch_.size_bytes() >= size_bytes) return scratch_.data();
  CKPT_RETURN_IF_ERROR(queue.Synchronize());
  if (scratch_handle_ != nullptr) {
    (void)nccl_.deregister_memory(communicator_, std::exchange(scratch_handle_, nullptr));
  }
  scratch_ = Buffer();
  CKPT_ASSIGN_OR_RETURN(scratch_, device_.Allocate(size_bytes, MemoryUse::kOther));
  CKPT_RETURN_IF_ERROR(nccl_.StatusOf(
      nccl_.register_memory(communicator_, scratch_.data(), size_bytes, &scratch_handle_),
      "ncclCommRegister", communicator_));
  return scratch_.data();
}

void NcclMemory::Forget() {
  for (void* const handle : handles_) (void)nccl_.deregister_memory(communicator_, handle);
  handles_.clear();
  if (scratch_handle_ != nullptr) {
    (void)nccl_.deregister_memory(communicator_, std::exchange(scratch_handle_, nullptr));
  }
  scratch_ = Buffer();
}

}  // namespace ckpt::trainer
