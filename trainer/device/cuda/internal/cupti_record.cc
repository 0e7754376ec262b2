#include "trainer/device/cuda/internal/cupti_record.h"

#include <array>
#include <cstddef>
#include <cstdlib>
#include <cupti.h>
#include <cxxabi.h>
#include <dlfcn.h>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

namespace ckpt::trainer {
namespace {

constexpr const char* kLibrary = "libcupti.so.13";
constexpr std::size_t kBufferBytes = std::size_t{8} << 20;
constexpr std::size_t kBufferAlignment = 8;

// What CUPTI has handed over. Its callbacks get no pointer of ours, so there is one for the process.
struct Collected {
  std::mutex mutex;
  std::vector<DeviceWork> work;
};

Collected& TheCollected() {
  static Collected collected;
  return collected;
}

// The functions of CUPTI that are used, under their own names.
struct Cupti {
  decltype(&cuptiActivityRegisterCallbacks) register_callbacks = nullptr;
  decltype(&cuptiActivityEnable) enable = nullptr;
  decltype(&cuptiActivityDisable) disable = nullptr;
  decltype(&cuptiActivityFlushAll) flush_all = nullptr;
  decltype(&cuptiActivityGetNextRecord) get_next_record = nullptr;
};

Result<Cupti> LoadCupti() {
  void* const library = dlopen(kLibrary, RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) {
    return Error(ErrorKind::kUnsupported, "a GPU's work is recorded by CUPTI, which is not here")
        .Expected(kLibrary)
        .Actual(dlerror())
        .Hint("it comes with the CUDA toolkit; put its folder into LD_LIBRARY_PATH");
  }
  Cupti cupti;
  const auto load = [&](const char* name, auto& function) {
    function = reinterpret_cast<std::remove_reference_t<decltype(function)>>(dlsym(library, name));
    return function != nullptr;
  };
  if (load("cuptiActivityRegisterCallbacks", cupti.register_callbacks) &&
      load("cuptiActivityEnable", cupti.enable) && load("cuptiActivityDisable", cupti.disable) &&
      load("cuptiActivityFlushAll", cupti.flush_all) &&
      load("cuptiActivityGetNextRecord", cupti.get_next_record)) {
    return cupti;
  }
  return Error(ErrorKind::kUnsupported, "CUPTI lacks a function").Actual(dlerror());
}

Status CuptiStatus(CUptiResult code, const char* call) {
  if (code == CUPTI_SUCCESS) return OkStatus();
  return Error(ErrorKind::kSystem, "recording the GPU's work failed")
      .Expected(std::string(call) + " to succeed")
      .Actual("CUPTI error " + std::to_string(code));
}

std::string Demangled(const char* name) {
  int status = 0;
  char* const demangled = abi::__cxa_demangle(name, nullptr, nullptr, &status);
  std::string result = status == 0 ? demangled : name;
  std::free(demangled);
  return result;
}

template <typename Activity>
DeviceWork WorkOf(const CUpti_Activity* activity, std::string name) {
  const auto& typed = *reinterpret_cast<const Activity*>(activity);
  return {std::move(name), static_cast<std::int64_t>(typed.start),
          static_cast<std::int64_t>(typed.end)};
}

const Cupti* the_cupti = nullptr;  // for the callbacks; set before they are registered

void CUPTIAPI GiveBuffer(std::uint8_t** buffer, std::size_t* size_bytes, std::size_t* max_records) {
  *buffer = static_cast<std::uint8_t*>(std::aligned_alloc(kBufferAlignment, kBufferBytes));
  *size_bytes = *buffer == nullptr ? 0 : kBufferBytes;
  *max_records = 0;  // as many as fit
}

void CUPTIAPI TakeBuffer(CUcontext /*context*/, std::uint32_t /*stream*/, std::uint8_t* buffer,
                         std::size_t /*size_bytes*/, std::size_t valid_bytes) {
  Collected& collected = TheCollected();
  const std::lock_guard lock(collected.mutex);
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
      default:
        break;
    }
  }
  std::free(buffer);
}

constexpr std::array kKinds = {CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL, CUPTI_ACTIVITY_KIND_MEMCPY,
                               CUPTI_ACTIVITY_KIND_MEMSET};

class CuptiRecord final : public WorkRecord {
 public:
  explicit CuptiRecord(const Cupti& cupti) : cupti_(cupti) {}
  ~CuptiRecord() override { Stop(); }
  CuptiRecord(const CuptiRecord&) = delete;
  CuptiRecord& operator=(const CuptiRecord&) = delete;

  Result<std::vector<DeviceWork>> Finish() override {
    CKPT_RETURN_IF_ERROR(CuptiStatus(cupti_.flush_all(0), "cuptiActivityFlushAll"));
    Stop();
    Collected& collected = TheCollected();
    const std::lock_guard lock(collected.mutex);
    return std::exchange(collected.work, {});
  }

 private:
  void Stop() {
    for (const CUpti_ActivityKind kind : kKinds) (void)cupti_.disable(kind);
  }

  const Cupti& cupti_;
};

}  // namespace

Result<std::unique_ptr<WorkRecord>> StartCuptiRecord() {
  static const Result<Cupti> cupti = LoadCupti();
  if (!cupti.ok()) return cupti.status();
  the_cupti = &*cupti;
  {
    Collected& collected = TheCollected();
    const std::lock_guard lock(collected.mutex);
    collected.work.clear();
  }
  CKPT_RETURN_IF_ERROR(CuptiStatus(cupti->register_callbacks(&GiveBuffer, &TakeBuffer),
                                   "cuptiActivityRegisterCallbacks"));
  auto record = std::make_unique<CuptiRecord>(*cupti);
  for (const CUpti_ActivityKind kind : kKinds) {
    CKPT_RETURN_IF_ERROR(CuptiStatus(cupti->enable(kind), "cuptiActivityEnable"));
  }
  return std::unique_ptr<WorkRecord>(std::move(record));
}

}  // namespace ckpt::trainer
