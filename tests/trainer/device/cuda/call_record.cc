#include "tests/trainer/device/cuda/call_record.h"

#include <string_view>
#include <utility>

namespace ckpt::testing {
namespace {

using trainer::CuptiLibrary;
using trainer::CuptiStatus;

constexpr CUpti_CallbackDomain kDomains[] = {CUPTI_CB_DOMAIN_RUNTIME_API,
                                             CUPTI_CB_DOMAIN_DRIVER_API};

// Some names begin with two underscores; a version follows a later one: "cuMemAlloc_v2".
std::string WithoutVersion(std::string_view name) {
  return std::string(name.substr(0, name.find('_', 2)));
}

// Null if both ends are on the device.
const void* HostMemoryOf(const cudaMemcpyAsync_v3020_params& copy) {
  switch (copy.kind) {
    case cudaMemcpyHostToDevice:
      return copy.src;
    case cudaMemcpyDeviceToHost:
      return copy.dst;
    case cudaMemcpyHostToHost:
    case cudaMemcpyDeviceToDevice:
    case cudaMemcpyDefault:
      break;
  }
  return nullptr;
}

}  // namespace

void CUPTIAPI CallRecord::OnCall(void* record, CUpti_CallbackDomain domain, CUpti_CallbackId id,
                                 const void* call) {
  const auto& data = *static_cast<const CUpti_CallbackData*>(call);
  if (data.callbackSite != CUPTI_API_ENTER) return;
  auto& self = *static_cast<CallRecord*>(record);
  const std::lock_guard lock(self.mutex_);
  ++self.calls_.counts[WithoutVersion(data.functionName)];
  if (domain != CUPTI_CB_DOMAIN_RUNTIME_API ||
      id != CUPTI_RUNTIME_TRACE_CBID_cudaMemcpyAsync_v3020) {
    return;
  }
  const void* const host =
      HostMemoryOf(*static_cast<const cudaMemcpyAsync_v3020_params*>(data.functionParams));
  if (host != nullptr) self.calls_.host_memory.push_back(host);
}

Result<std::unique_ptr<CallRecord>> CallRecord::Start() {
  CKPT_ASSIGN_OR_RETURN(const CuptiLibrary* const cupti, trainer::LoadCupti());
  std::unique_ptr<CallRecord> record(new CallRecord(*cupti));
  CKPT_RETURN_IF_ERROR(
      CuptiStatus(cupti->subscribe(&record->subscriber_, &OnCall, record.get()), "cuptiSubscribe"));
  for (const CUpti_CallbackDomain domain : kDomains) {
    CKPT_RETURN_IF_ERROR(
        CuptiStatus(cupti->enable_domain(1, record->subscriber_, domain), "cuptiEnableDomain"));
  }
  return record;
}

CallRecord::~CallRecord() { Stop(); }

void CallRecord::Stop() {
  if (subscriber_ != nullptr) (void)cupti_.unsubscribe(std::exchange(subscriber_, nullptr));
}

RecordedCalls CallRecord::Finish() {
  Stop();
  const std::lock_guard lock(mutex_);
  return std::move(calls_);
}

}  // namespace ckpt::testing
