// CallRecord: the calls of CUDA's runtime and driver that this process makes.
#ifndef CKPT_TESTS_TRAINER_DEVICE_CUDA_CALL_RECORD_H_
#define CKPT_TESTS_TRAINER_DEVICE_CUDA_CALL_RECORD_H_

#include <cstdint>
#include <cupti.h>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "core/base/result.h"
#include "trainer/device/cuda/internal/cupti_library.h"

namespace ckpt::testing {

struct RecordedCalls {
  // Calls by the function's name without a version: "cudaMemcpyAsync", "cuMemAlloc". A call of the
  // runtime may make calls of the driver, which count too.
  std::map<std::string, std::int64_t, std::less<>> counts;
  // The host's ends of asynchronous copies. A copy of memory that is not pinned may wait.
  std::vector<const void*> host_memory;
};

// Records all threads of the process, those of its libraries too, from Start to Finish. There can
// be one at a time. A program that is itself profiled cannot have one.
class CallRecord {
 public:
  // Errors: kUnsupported (there is no CUPTI here), kSystem (CUPTI refuses).
  static Result<std::unique_ptr<CallRecord>> Start();
  ~CallRecord();
  CallRecord(const CallRecord&) = delete;
  CallRecord& operator=(const CallRecord&) = delete;

  RecordedCalls Finish();

 private:
  explicit CallRecord(const trainer::CuptiLibrary& cupti) : cupti_(cupti) {}

  static void CUPTIAPI OnCall(void* record, CUpti_CallbackDomain domain, CUpti_CallbackId id,
                              const void* call);
  void Stop();

  const trainer::CuptiLibrary& cupti_;
  CUpti_SubscriberHandle subscriber_ = nullptr;
  std::mutex mutex_;
  RecordedCalls calls_;
};

}  // namespace ckpt::testing

#endif  // CKPT_TESTS_TRAINER_DEVICE_CUDA_CALL_RECORD_H_
