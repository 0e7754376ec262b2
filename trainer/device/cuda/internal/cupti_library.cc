#include "trainer/device/cuda/internal/cupti_library.h"

#include <string>

#include "trainer/device/cuda/internal/found_library.h"

namespace ckpt::trainer {
namespace {

constexpr const char* kCuptiLibrary = "libcupti.so.13";

Result<CuptiLibrary> LoadCuptiFunctions() {
  FoundLibrary library(kCuptiLibrary);
  if (!library.is_there()) {
    return Error(ErrorKind::kUnsupported, "a GPU's work is recorded by CUPTI, which is not here")
        .Expected(kCuptiLibrary)
        .Actual(library.why_not())
        .Hint("it comes with the CUDA toolkit; put its folder into LD_LIBRARY_PATH");
  }
  CuptiLibrary cupti;
  library.Load("cuptiActivityRegisterCallbacks", cupti.register_callbacks);
  library.Load("cuptiActivityEnable", cupti.enable);
  library.Load("cuptiActivityDisable", cupti.disable);
  library.Load("cuptiActivityFlushAll", cupti.flush_all);
  library.Load("cuptiActivityGetNextRecord", cupti.get_next_record);
  library.Load("cuptiActivityPushExternalCorrelationId", cupti.push_id);
  library.Load("cuptiActivityPopExternalCorrelationId", cupti.pop_id);
  library.Load("cuptiSubscribe", cupti.subscribe);
  library.Load("cuptiUnsubscribe", cupti.unsubscribe);
  library.Load("cuptiEnableDomain", cupti.enable_domain);
  if (library.has_all()) return cupti;
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
