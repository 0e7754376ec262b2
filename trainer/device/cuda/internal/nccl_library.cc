#include "trainer/device/cuda/internal/nccl_library.h"

#include <cstdlib>
#include <string>

#include "trainer/device/cuda/internal/found_library.h"

namespace ckpt::trainer {
namespace {

constexpr const char* kNcclLibrary = "libnccl.so.2";

// Multicast over NVLink, which nothing here needs, can take the GPUs of a host out of service. NCCL
// reads its settings at its first call; they are set before there are threads, which may read the
// environment.
const bool kIsMulticastOff = ::setenv("NCCL_NVLS_ENABLE", "0", /*overwrite=*/1) == 0;

Result<NcclLibrary> LoadFunctions() {
  if (!kIsMulticastOff) {
    return Error(ErrorKind::kSystem, "the environment variable NCCL_NVLS_ENABLE cannot be set");
  }
  FoundLibrary library(kNcclLibrary);
  if (!library.is_there()) {
    return Error(ErrorKind::kUnsupported,
                 "the GPUs of this run communicate by NCCL, which is not here")
        .Expected(kNcclLibrary)
        .Actual(library.why_not())
        .Hint(
            "put its folder into LD_LIBRARY_PATH, or start one process without "
            "gpu_collectives=nccl: its threads are the ranks, and read each other's memory");
  }
  NcclLibrary nccl;
  library.Load("ncclGetUniqueId", nccl.get_unique_id);
  library.Load("ncclCommInitRank", nccl.init_rank);
  library.Load("ncclCommDestroy", nccl.destroy);
  library.Load("ncclCommGetAsyncError", nccl.async_error);
  library.Load("ncclGetErrorString", nccl.error_string);
  library.Load("ncclGetLastError", nccl.last_error);
  library.Load("ncclCommRegister", nccl.register_memory);
  library.Load("ncclCommDeregister", nccl.deregister_memory);
  library.Load("ncclAllGather", nccl.all_gather);
  library.Load("ncclSend", nccl.send);
  library.Load("ncclRecv", nccl.receive);
  library.Load("ncclGroupStart", nccl.group_start);
  library.Load("ncclGroupEnd", nccl.group_end);
  if (library.has_all()) return nccl;
  return Error(ErrorKind::kUnsupported, "NCCL lacks a function").Expected(kNcclLibrary);
}

}  // namespace

Status NcclLibrary::StatusOf(ncclResult_t code, std::string_view call,
                             ncclComm_t communicator) const {
  if (code == ncclSuccess) return OkStatus();
  const char* const more = last_error(communicator);
  std::string actual = error_string(code);
  if (more != nullptr && *more != '\0') actual += ": " + std::string(more);
  return Error(ErrorKind::kSystem, "NCCL failed")
      .Expected(std::string(call) + " to succeed")
      .Actual(std::move(actual));
}

Result<const NcclLibrary*> LoadNccl() {
  static const Result<NcclLibrary> loaded = LoadFunctions();
  if (!loaded.ok()) return loaded.status();
  return &*loaded;
}

}  // namespace ckpt::trainer
