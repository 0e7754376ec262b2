#include "trainer/device/cuda/internal/nccl_library.h"

#include <cstdlib>
#include <dlfcn.h>
#include <string>
#include <type_traits>

namespace ckpt::trainer {
namespace {

constexpr const char* kNcclLibrary = "libnccl.so.2";

Result<NcclLibrary> LoadFunctions() {
  // Multicast over NVLink, which nothing here needs, can take the GPUs of a host out of service.
  // NCCL reads its settings at its first call.
  if (::setenv("NCCL_NVLS_ENABLE", "0", /*overwrite=*/1) != 0) {
    return Error(ErrorKind::kSystem, "the environment variable NCCL_NVLS_ENABLE cannot be set");
  }
  void* const library = dlopen(kNcclLibrary, RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) {
    return Error(ErrorKind::kUnsupported,
                 "GPUs of several processes communicate by NCCL, which is not here")
        .Expected(kNcclLibrary)
        .Actual(dlerror())
        .Hint(
            "put its folder into LD_LIBRARY_PATH, or start one process, whose threads are the "
            "ranks");
  }
  NcclLibrary nccl;
  bool has_all = true;
  const auto load = [&](const char* name, auto& function) {
    function = reinterpret_cast<std::remove_reference_t<decltype(function)>>(dlsym(library, name));
    has_all = has_all && function != nullptr;
  };
  load("ncclGetUniqueId", nccl.get_unique_id);
  load("ncclCommInitRank", nccl.init_rank);
  load("ncclCommDestroy", nccl.destroy);
  load("ncclCommGetAsyncError", nccl.async_error);
  load("ncclGetErrorString", nccl.error_string);
  load("ncclGetLastError", nccl.last_error);
  load("ncclCommRegister", nccl.register_memory);
  load("ncclCommDeregister", nccl.deregister_memory);
  load("ncclAllGather", nccl.all_gather);
  load("ncclSend", nccl.send);
  load("ncclRecv", nccl.receive);
  load("ncclGroupStart", nccl.group_start);
  load("ncclGroupEnd", nccl.group_end);
  if (has_all) return nccl;
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
