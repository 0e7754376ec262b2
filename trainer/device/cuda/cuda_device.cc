#include "trainer/device/cuda/cuda_device.h"

#include <algorithm>
#include <array>
#include <string>
#include <string_view>
#include <utility>

#include <cuda_runtime_api.h>

#include "trainer/comm/host_group.h"
#include "trainer/device/cuda/cuda_queue.h"
#include "trainer/device/cuda/cuda_status.h"
#include "trainer/device/cuda/internal/cuda_peer_reader.h"
#include "trainer/device/cuda/internal/cupti_record.h"
#include "trainer/device/cuda/internal/nccl_collectives.h"
#include "trainer/device/cuda/internal/nccl_library.h"
#include "trainer/device/cuda/internal/nccl_watchdog.h"
#include "trainer/device/peer/peer_collectives.h"

namespace ckpt::trainer {
namespace {

// Code is built for this architecture alone (CMAKE_CUDA_ARCHITECTURES): 90 is 9.0. It runs on GPUs
// of the same major number whose minor number is not smaller.
constexpr int kCodeMajor = CKPT_CUDA_CAPABILITY / 10;
constexpr int kCodeMinor = CKPT_CUDA_CAPABILITY % 10;

// Dense products, without sparsity, of the data sheets. Of the memory's speed nine tenths: an H200
// copies 4.3 of its 4.8 TB/s.
struct PeakOfGpu {
  std::string_view name;  // a part of the device's name
  double bfloat16 = 0;
  double float32 = 0;
  double bandwidth = 0;
};
constexpr std::array kPeaks = {
    PeakOfGpu{"H100 PCIe", 756e12, 51e12, 1.8e12}, PeakOfGpu{"H100 NVL", 835e12, 60e12, 3.5e12},
    PeakOfGpu{"H100", 989e12, 67e12, 3.0e12},      PeakOfGpu{"H200 NVL", 835e12, 60e12, 4.3e12},
    PeakOfGpu{"H200", 989e12, 67e12, 4.3e12},      PeakOfGpu{"A100", 312e12, 19.5e12, 1.8e12}};

// Nothing is known of a part of a GPU (MIG).
PeakOfGpu PeakOf(std::string_view gpu) {
  if (gpu.find("MIG") != std::string_view::npos) return {};
  const auto found = std::ranges::find_if(
      kPeaks, [&](const PeakOfGpu& peak) { return gpu.find(peak.name) != std::string_view::npos; });
  return found == kPeaks.end() ? PeakOfGpu{} : *found;
}

void Copy(Queue& queue, const void* from, void* to, std::uint64_t size_bytes, cudaMemcpyKind kind) {
  if (size_bytes == 0 || from == to) return;
  RunOnCuda(queue, [=](CudaQueue& cuda) {
    (void)cudaMemcpyAsync(to, from, size_bytes, kind, cuda.stream());
  });
}

class CudaDevice final : public Device {
 public:
  CudaDevice(PeakOfGpu peak, GpuCollectives collectives)
      : peak_(peak), collectives_(collectives), events_(std::make_shared<CudaEventPool>()) {}

  Result<Buffer> Allocate(std::uint64_t size_bytes, MemoryUse use) override {
    void* data = nullptr;
    // At least one byte, since a null tensor means an absent one.
    const cudaError_t code = cudaMalloc(&data, size_bytes == 0 ? 1 : size_bytes);
    if (code == cudaErrorMemoryAllocation) {
      (void)cudaGetLastError();  // the device is usable after it
      return Error(ErrorKind::kSystem, "out of memory on the GPU")
          .Expected(std::to_string(size_bytes) + " bytes for " + std::string(MemoryUseName(use)));
    }
    CKPT_RETURN_IF_ERROR(CudaStatus(code, "cudaMalloc"));
    Count(use, size_bytes);
    Buffer buffer(this, data, size_bytes, use);
    // The streams of queues do not wait for the default stream, so the caller does.
    CKPT_RETURN_IF_ERROR(
        CudaStatus(cudaMemsetAsync(data, 0, size_bytes, cudaStreamLegacy), "cudaMemsetAsync"));
    CKPT_RETURN_IF_ERROR(
        CudaStatus(cudaStreamSynchronize(cudaStreamLegacy), "cudaStreamSynchronize"));
    return buffer;
  }

  Result<PinnedBuffer> AllocatePinned(std::uint64_t size_bytes) override {
    void* data = nullptr;
    CKPT_RETURN_IF_ERROR(
        CudaStatus(cudaHostAlloc(&data, size_bytes == 0 ? 1 : size_bytes, cudaHostAllocDefault),
                   "cudaHostAlloc"));
    return PinnedBuffer(this, data, size_bytes);
  }

  [[nodiscard]] bool is_asynchronous() const override { return true; }

  [[nodiscard]] double PeakFlops(DType compute) const override {
    return compute == DType::kBfloat16 ? peak_.bfloat16 : peak_.float32;
  }

  [[nodiscard]] double PeakBandwidth() const override { return peak_.bandwidth; }

  Result<std::unique_ptr<WorkRecord>> RecordWork() override { return StartCuptiRecord(); }

  std::unique_ptr<Queue> MakeQueue(std::string_view /*name*/) override {
    return std::make_unique<CudaQueue>(*this, events_);
  }

  void CopyToHost(Queue& queue, const Tensor& from, void* host) override {
    Copy(queue, from.data, host, from.size_bytes(), cudaMemcpyDeviceToHost);
  }
  void CopyFromHost(Queue& queue, const void* host, const Tensor& to) override {
    Copy(queue, host, to.data, to.size_bytes(), cudaMemcpyHostToDevice);
  }

  Result<std::unique_ptr<Collectives>> MakeCollectives(std::unique_ptr<HostGroup> group) override {
    const bool are_processes = group->abort_ends_processes();
    const bool by_nccl = collectives_ == GpuCollectives::kAuto
                             ? are_processes
                             : collectives_ == GpuCollectives::kNccl;
    if (group->size() > 1 && by_nccl) {
      if (watchdog_ == nullptr) watchdog_ = std::make_unique<NcclWatchdog>();
      CKPT_ASSIGN_OR_RETURN(const NcclLibrary* const nccl, LoadNccl());
      return MakeNcclCollectives(*nccl, std::move(group), *this, *watchdog_);
    }
    CKPT_ASSIGN_OR_RETURN(std::unique_ptr<PeerReader> reader, MakeCudaPeerReader(*group));
    return MakePeerCollectives(std::move(group), std::move(reader));
  }

 private:
  void Free(void* data) override { (void)cudaFree(data); }
  void FreePinned(void* data) override { (void)cudaFreeHost(data); }

  const PeakOfGpu peak_;
  const GpuCollectives collectives_;
  const std::shared_ptr<CudaEventPool> events_;
  std::unique_ptr<NcclWatchdog> watchdog_;  // of NCCL's collectives
};

}  // namespace

int NumCudaDevices() {
  int count = 0;
  if (cudaGetDeviceCount(&count) == cudaSuccess) return count;
  (void)cudaGetLastError();
  return 0;
}

Result<std::unique_ptr<Device>> MakeCudaDevice(int ordinal, GpuCollectives collectives) {
  const int count = NumCudaDevices();
  if (ordinal < 0 || ordinal >= count) {
    return Error(ErrorKind::kUnsupported, "there is no such GPU")
        .Expected("GPU " + std::to_string(ordinal))
        .Actual(std::to_string(count) + " GPUs");
  }
  cudaDeviceProp properties{};
  CKPT_RETURN_IF_ERROR(
      CudaStatus(cudaGetDeviceProperties(&properties, ordinal), "cudaGetDeviceProperties"));
  if (properties.major != kCodeMajor || properties.minor < kCodeMinor) {
    return Error(ErrorKind::kUnsupported, "this program has no code for the GPU")
        .Expected("compute capability " + std::to_string(kCodeMajor) + "." +
                  std::to_string(kCodeMinor) + " or a later " + std::to_string(kCodeMajor) + ".x")
        .Actual(std::string(properties.name) + ", " + std::to_string(properties.major) + "." +
                std::to_string(properties.minor))
        .Hint("build it with CMAKE_CUDA_ARCHITECTURES=" + std::to_string(properties.major) +
              std::to_string(properties.minor));
  }
  CKPT_RETURN_IF_ERROR(CudaStatus(cudaSetDevice(ordinal), "cudaSetDevice"));
  return std::unique_ptr<Device>(
      std::make_unique<CudaDevice>(PeakOf(properties.name), collectives));
}

}  // namespace ckpt::trainer
