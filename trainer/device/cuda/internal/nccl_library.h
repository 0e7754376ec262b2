// The functions of NCCL that are used. The library is 200 MB, so only runs that communicate by
// it load it.
#ifndef CKPT_TRAINER_DEVICE_CUDA_INTERNAL_NCCL_LIBRARY_H_
#define CKPT_TRAINER_DEVICE_CUDA_INTERNAL_NCCL_LIBRARY_H_

#include <string_view>

#include <nccl.h>

#include "core/base/result.h"

namespace ckpt::trainer {

struct NcclLibrary {
  decltype(&ncclGetUniqueId) get_unique_id = nullptr;
  decltype(&ncclCommInitRank) init_rank = nullptr;
  decltype(&ncclCommDestroy) destroy = nullptr;
  decltype(&ncclCommGetAsyncError) async_error = nullptr;
  decltype(&ncclGetErrorString) error_string = nullptr;
  decltype(&ncclGetLastError) last_error = nullptr;
  decltype(&ncclCommRegister) register_memory = nullptr;
  decltype(&ncclCommDeregister) deregister_memory = nullptr;
  decltype(&ncclAllGather) all_gather = nullptr;
  decltype(&ncclSend) send = nullptr;
  decltype(&ncclRecv) receive = nullptr;
  decltype(&ncclGroupStart) group_start = nullptr;
  decltype(&ncclGroupEnd) group_end = nullptr;

  // OK, or a kSystem error that says which call failed and why. `communicator` may be null.
  [[nodiscard]] Status StatusOf(ncclResult_t code, std::string_view call,
                                ncclComm_t communicator) const;
};

// Every call gives the same object. Errors: kUnsupported (there is no NCCL here), kSystem.
Result<const NcclLibrary*> LoadNccl();

}  // namespace ckpt::trainer

#endif  // CKPT_TRAINER_DEVICE_CUDA_INTERNAL_NCCL_LIBRARY_H_
