#include "trainer/device/cuda/internal/cupti_record.h"

#include <array>
#include <cstddef>
#include <cstdlib>
#include <cxxabi.h>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include <cuda_runtime_api.h>

#include "core/base/mutex.h"
#include "trainer/device/cuda/cuda_status.h"
#include "trainer/device/cuda/internal/cupti_library.h"

namespace ckpt::trainer {
namespace {

constexpr std::size_t kBufferBytes = std::size_t{8} << 20;
constexpr std::size_t kBufferAlignment = 8;
constexpr CUpti_ExternalCorrelationKind kOperations = CUPTI_EXTERNAL_CORRELATION_KIND_CUSTOM0;

// Work of a GPU, and the call of the runtime or driver that it came from.
struct CollectedWork {
  DeviceWork work;
  std::uint32_t gpu = 0;
  std::uint32_t call = 0;
};

// What CUPTI has handed over. Its callbacks get no pointer of ours, so there is one for the
// process.
struct Collected {
  Mutex mutex;
  std::vector<CollectedWork> work CKPT_GUARDED_BY(mutex);
  std::unordered_map<std::uint32_t, std::int64_t> operations CKPT_GUARDED_BY(mutex);  // by call
};

Collected& TheCollected() {
  static Collected collected;
  return collected;
}

std::string Demangled(const char* name) {
  int status = 0;
  char* const demangled = abi::__cxa_demangle(name, nullptr, nullptr, &status);
  std::string result = status == 0 ? demangled : name;
  std::free(demangled);
  return result;
}

template <typename Activity>
CollectedWork WorkOf(const CUpti_Activity* activity, std::string name) {
  const auto& typed = *reinterpret_cast<const Activity*>(activity);
  return {.work = {.name = std::move(name),
                   .begin_ns = static_cast<std::int64_t>(typed.start),
                   .end_ns = static_cast<std::int64_t>(typed.end),
                   .queue = static_cast<std::int64_t>(typed.streamId)},
          .gpu = typed.deviceId,
          .call = typed.correlationId};
}

const CuptiLibrary* the_cupti = nullptr;  // for the callbacks; set before they are registered

void CUPTIAPI GiveBuffer(std::uint8_t** buffer, std::size_t* size_bytes, std::size_t* max_records) {
  *buffer = static_cast<std::uint8_t*>(std::aligned_alloc(kBufferAlignment, kBufferBytes));
  *size_bytes = *buffer == nullptr ? 0 : kBufferBytes;
  *max_records = 0;  // as many as fit
}

void CUPTIAPI TakeBuffer(CUcontext /*context*/, std::uint32_t /*stream*/, std::uint8_t* buffer,
                         std::size_t /*size_bytes*/, std::size_t valid_bytes) {
  Collected& collected = TheCollected();
  const MutexLock lock(collected.mutex);
  CUpti_Activity* activity = nullptr;
  while (the_cupti->get_next_record(buffer, valid_bytes, &activity) == CUPTI_SUCCESS) {
    switch (activity->kind) {
      case CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL:
        collected.work.push_back(WorkOf<CUpti_ActivityKernel10>(
            activity, Demangled(reinterpret_cast<CUpti_ActivityKernel10*>(activity)->name)));
        break;
      case CUPTI_ACTIVITY_KIND_MEMCPY:
        collected.work.push_back(WorkOf<CUpti_ActivityMemcpy6>(activity, "copy"));
        break;
      case CUPTI_ACTIVITY_KIND_MEMSET:
        collected.work.push_back(WorkOf<CUpti_ActivityMemset4>(activity, "fill"));
        break;
      case CUPTI_ACTIVITY_KIND_EXTERNAL_CORRELATION: {
        const auto& of_call = *reinterpret_cast<CUpti_ActivityExternalCorrelation*>(activity);
        if (of_call.externalKind != kOperations) break;
        collected.operations[of_call.correlationId] = static_cast<std::int64_t>(of_call.externalId);
        break;
      }
      default:  // the calls themselves
        break;
    }
  }
  std::free(buffer);
}

// Calls are recorded because a call is what CUPTI connects with an operation.
constexpr std::array kKinds = {CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL,
                               CUPTI_ACTIVITY_KIND_MEMCPY,
                               CUPTI_ACTIVITY_KIND_MEMSET,
                               CUPTI_ACTIVITY_KIND_RUNTIME,
                               CUPTI_ACTIVITY_KIND_DRIVER,
                               CUPTI_ACTIVITY_KIND_EXTERNAL_CORRELATION};

class CuptiRecord final : public WorkRecord {
 public:
  CuptiRecord(const CuptiLibrary& cupti, int gpu)
      : cupti_(cupti), gpu_(static_cast<std::uint32_t>(gpu)) {}
  ~CuptiRecord() override { Stop(); }
  CuptiRecord(const CuptiRecord&) = delete;
  CuptiRecord& operator=(const CuptiRecord&) = delete;

  void BeginOperation(Queue& /*queue*/, std::int64_t number) override {
    const CUptiResult code = cupti_.push_id(kOperations, static_cast<std::uint64_t>(number));
    if (failure_.ok()) failure_ = CuptiStatus(code, "cuptiActivityPushExternalCorrelationId");
  }
  void EndOperation(Queue& /*queue*/) override {
    const CUptiResult code = cupti_.pop_id(kOperations, nullptr);
    if (failure_.ok()) failure_ = CuptiStatus(code, "cuptiActivityPopExternalCorrelationId");
  }

  Result<std::vector<DeviceWork>> Finish() override {
    CKPT_RETURN_IF_ERROR(failure_);
    Stop();
    // Without force, CUPTI keeps a buffer in which any call has not returned yet.
    CKPT_RETURN_IF_ERROR(
        CuptiStatus(cupti_.flush_all(CUPTI_ACTIVITY_FLAG_FLUSH_FORCED), "cuptiActivityFlushAll"));
    Collected& collected = TheCollected();
    const MutexLock lock(collected.mutex);
    std::vector<DeviceWork> work;
    for (CollectedWork& one : collected.work) {
      if (one.gpu != gpu_ || one.work.end_ns == 0) continue;  // another rank's, or not over
      const auto operation = collected.operations.find(one.call);
      if (operation != collected.operations.end()) one.work.operation = operation->second;
      work.push_back(std::move(one.work));
    }
    collected.work.clear();
    collected.operations.clear();
    return work;
  }

 private:
  void Stop() {
    for (const CUpti_ActivityKind kind : kKinds) (void)cupti_.disable(kind);
  }

  const CuptiLibrary& cupti_;
  const std::uint32_t gpu_;
  Status failure_;
};

}  // namespace

Result<std::unique_ptr<WorkRecord>> StartCuptiRecord() {
  CKPT_ASSIGN_OR_RETURN(const CuptiLibrary* const cupti, LoadCupti());
  the_cupti = cupti;
  {
    Collected& collected = TheCollected();
    const MutexLock lock(collected.mutex);
    collected.work.clear();
    collected.operations.clear();
  }
  int gpu = 0;
  CKPT_RETURN_IF_ERROR(CudaStatus(cudaGetDevice(&gpu), "cudaGetDevice"));
  CKPT_RETURN_IF_ERROR(CuptiStatus(cupti->register_callbacks(&GiveBuffer, &TakeBuffer),
                                   "cuptiActivityRegisterCallbacks"));
  auto record = std::make_unique<CuptiRecord>(*cupti, gpu);
  for (const CUpti_ActivityKind kind : kKinds) {
    CKPT_RETURN_IF_ERROR(CuptiStatus(cupti->enable(kind), "cuptiActivityEnable"));
  }
  return std::unique_ptr<WorkRecord>(std::move(record));
}

}  // namespace ckpt::trainer
