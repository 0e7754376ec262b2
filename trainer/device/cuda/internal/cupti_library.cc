#include "trainer/device/cuda/internal/cupti_library.h"

#include <dlfcn.h>
#include <string>
#include <type_traits>

namespace ckpt::trainer {
namespace {

constexpr const char* kCuptiLibrary = "libcupti.so.13";

Result<CuptiLibrary> LoadCuptiFunctions() {
  void* const library = dlopen(kCuptiLibrary, RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) {
    return Error(ErrorKind::kUnsupported, "a GPU's work is recorded by CUPTI, which is not here")
        .Expected(kCuptiLibrary)
        .Actual(dlerror())
        .Hint("it comes with the CUDA toolkit; put its folder into LD_LIBRARY_PATH");
  }
  CuptiLibrary cupti;
  bool has_all = true;
  const auto load = [&](const char* name, auto& function) {
    function = reinterpret_cast<std::remove_reference_t<decltype(function)>>(dlsym(library, name));
    has_all = has_all && function != nullptr;
  };
  load("cuptiActivityRegisterCallbacks", cupti.register_callbacks);
  load("cuptiActivityEnable", cupti.enable);
  load("cuptiActivityDisable", cupti.disable);
  load("cuptiActivityFlushAll", cupti.flush_all);
  load("cuptiActivityGetNextRecord", cupti.get_next_record);
  load("cuptiActivityPushExternalCorrelationId", cupti.push_id);
  load("cuptiActivityPopExternalCorrelationId", cupti.pop_id);
  load("cuptiSubscribe", cupti.subscribe);
  load("cuptiUnsubscribe", cupti.unsubscribe);
  load("cuptiEnableDomain", cupti.enable_domain);
  if (has_all) return cupti;
  return Error(ErrorKind::kUnsupported, "CUPTI lacks a function").Expected(kCuptiLibrary);
}

}  // namespace

Result<const CuptiLibrary*> LoadCupti() {
  static const Result<CuptiLibrary> cupti = LoadCuptiFunctions();
  if (!cupti.ok()) return cupti.status();
  return &*cupti;
}

Status CuptiStatus(CUptiResult code, std::string_view call) {
  if (code == CUPTI_SUCCESS) return OkStatus();
  return Error(ErrorKind::kSystem, "recording the GPU's work failed")
      .Expected(std::string(call) + " to succeed")
      .Actual("CUPTI error " + std::to_string(code));
}

}  // namespace ckpt::trainer
