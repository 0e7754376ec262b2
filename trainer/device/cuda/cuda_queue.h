// CudaQueue: a CUDA stream as a Queue, with the scratch memory of the work on it.
#ifndef CKPT_TRAINER_DEVICE_CUDA_CUDA_QUEUE_H_
#define CKPT_TRAINER_DEVICE_CUDA_CUDA_QUEUE_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include <cuda_runtime_api.h>

#include "core/base/mutex.h"
#include "core/base/status.h"
#include "trainer/device/cuda/cuda_status.h"
#include "trainer/device/device.h"
#include "trainer/device/queue.h"

namespace ckpt::trainer {

// Events that are not in use, so that a step creates none. Events may outlive their queue, so they
// share the pool.
//
// Thread-safety: any thread, because the last holder of an event may be the thread that writes a
// checkpoint.
class CudaEventPool {
 public:
  CudaEventPool() = default;
  ~CudaEventPool();
  CudaEventPool(const CudaEventPool&) = delete;
  CudaEventPool& operator=(const CudaEventPool&) = delete;

  // Null if the driver has none left.
  cudaEvent_t Take() CKPT_EXCLUDES(mutex_);
  void Return(cudaEvent_t event) CKPT_EXCLUDES(mutex_);

 private:
  Mutex mutex_;
  std::vector<cudaEvent_t> idle_ CKPT_GUARDED_BY(mutex_);
};

// Every queue of a CUDA device is a CudaQueue. Its stream is non-blocking: it does not wait for
// the legacy default stream.
//
// Thread-safety: the rank's thread.
class CudaQueue final : public Queue {
 public:
  // `device` outlives the queue.
  CudaQueue(Device& device, std::shared_ptr<CudaEventPool> events);
  ~CudaQueue() override;

  Event Record() override;
  void Wait(const Event& event) override;
  Status Synchronize() override;
  Status Await(const Event& event) override;
  void Fail(Status error) override;

  [[nodiscard]] cudaStream_t stream() const { return stream_; }
  [[nodiscard]] bool has_failed() const { return !failure_.ok(); }

  // The first failure of the event's queue before it. The event may be of any CUDA queue, here and
  // below.
  [[nodiscard]] static const Status& FailureBefore(const Event& event);
  // Blocks the caller until `event` is reached. Errors: as Await.
  static Status AwaitOnHost(const Event& event);

  // At least `size_bytes` that only work on this queue uses: the next call may hand out the same
  // memory, because the queue runs its work in order. Grows when a call needs more than any before
  // it, which happens in the first step; that waits for the queue. Null after a failure.
  std::byte* Scratch(std::uint64_t size_bytes);

 private:
  Device& device_;
  const std::shared_ptr<CudaEventPool> events_;
  cudaStream_t stream_ = nullptr;
  Status failure_;
  Buffer scratch_;
};

// Calls `enqueue(CudaQueue&)`, which puts work on the queue's stream, unless the queue has failed.
// An error of a launch in it fails the queue.
template <typename Enqueue>
void RunOnCuda(Queue& queue, const Enqueue& enqueue) {
  auto& cuda = static_cast<CudaQueue&>(queue);
  if (cuda.has_failed()) return;
  enqueue(cuda);
  const cudaError_t code = cudaGetLastError();
  if (code != cudaSuccess) cuda.Fail(CudaStatus(code, "a kernel launch"));
}

}  // namespace ckpt::trainer

#endif  // CKPT_TRAINER_DEVICE_CUDA_CUDA_QUEUE_H_
