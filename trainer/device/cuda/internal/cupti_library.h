// The functions of CUPTI that are used. The library comes with the CUDA toolkit and not with the
// driver, so only programs that look at a GPU's work or at the calls to it load it.
#ifndef CKPT_TRAINER_DEVICE_CUDA_INTERNAL_CUPTI_LIBRARY_H_
#define CKPT_TRAINER_DEVICE_CUDA_INTERNAL_CUPTI_LIBRARY_H_

#include <cupti.h>
#include <string_view>

#include "core/base/result.h"

namespace ckpt::trainer {

struct CuptiLibrary {
  // The work of a GPU.
  decltype(&cuptiActivityRegisterCallbacks) register_callbacks = nullptr;
  decltype(&cuptiActivityEnable) enable = nullptr;
  decltype(&cuptiActivityDisable) disable = nullptr;
  decltype(&cuptiActivityFlushAll) flush_all = nullptr;
  decltype(&cuptiActivityGetNextRecord) get_next_record = nullptr;
  decltype(&cuptiActivityPushExternalCorrelationId) push_id = nullptr;
  decltype(&cuptiActivityPopExternalCorrelationId) pop_id = nullptr;
  // The calls of the process.
  decltype(&cuptiSubscribe) subscribe = nullptr;
  decltype(&cuptiUnsubscribe) unsubscribe = nullptr;
  decltype(&cuptiEnableDomain) enable_domain = nullptr;
};

// Every call gives the same object. Errors: kUnsupported (there is no CUPTI here).
Result<const CuptiLibrary*> LoadCupti();

// OK, or a kSystem error that says which call failed.
[[nodiscard]] Status CuptiStatus(CUptiResult code, std::string_view call);

}  // namespace ckpt::trainer

#endif  // CKPT_TRAINER_DEVICE_CUDA_INTERNAL_CUPTI_LIBRARY_H_
