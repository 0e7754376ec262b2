#include "trainer/device/cuda/cuda_queue.h"

#include <utility>

namespace ckpt::trainer {
namespace {

// The point of an event in its stream. A failure before the point goes on to the queues that wait
// for it.
class CudaEventState final : public Event::State {
 public:
  CudaEventState(std::shared_ptr<CudaEventPool> pool, cudaEvent_t event, Status failure)
      : pool_(std::move(pool)), event_(event), failure_(std::move(failure)) {}
  // The stream has the point on record, and so have the streams that wait for it: the event can
  // mark another point at once.
  ~CudaEventState() override {
    if (event_ != nullptr) pool_->Return(event_);
  }
  CudaEventState(const CudaEventState&) = delete;
  CudaEventState& operator=(const CudaEventState&) = delete;

  [[nodiscard]] cudaEvent_t event() const { return event_; }
  [[nodiscard]] const Status& failure() const { return failure_; }

 private:
  const std::shared_ptr<CudaEventPool> pool_;
  const cudaEvent_t event_;
  const Status failure_;
};

}  // namespace

CudaEventPool::~CudaEventPool() {
  for (cudaEvent_t event : idle_) (void)cudaEventDestroy(event);
}

cudaEvent_t CudaEventPool::Take() {
  {
    const MutexLock lock(mutex_);
    if (!idle_.empty()) {
      cudaEvent_t event = idle_.back();
      idle_.pop_back();
      return event;
    }
  }
  cudaEvent_t event = nullptr;
  if (cudaEventCreateWithFlags(&event, cudaEventDisableTiming) != cudaSuccess) return nullptr;
  return event;
}

void CudaEventPool::Return(cudaEvent_t event) {
  const MutexLock lock(mutex_);
  idle_.push_back(event);
}

CudaQueue::CudaQueue(Device& device, std::shared_ptr<CudaEventPool> events)
    : device_(device), events_(std::move(events)) {
  failure_ = CudaStatus(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking),
                        "cudaStreamCreateWithFlags");
}

CudaQueue::~CudaQueue() {
  if (stream_ == nullptr) return;
  (void)cudaStreamSynchronize(stream_);
  (void)cudaStreamDestroy(stream_);
}

// A failed queue records too: what it began before must be over when the event is reached.
Event CudaQueue::Record() {
  cudaEvent_t const event = stream_ == nullptr ? nullptr : events_->Take();
  const cudaError_t code =
      event == nullptr ? cudaErrorMemoryAllocation : cudaEventRecord(event, stream_);
  if (code != cudaSuccess) Fail(CudaStatus(code, "cudaEventRecord"));
  return Event(std::make_shared<CudaEventState>(events_, event, failure_));
}

void CudaQueue::Wait(const Event& event) {
  if (event.state() == nullptr || has_failed()) return;
  const auto& state = static_cast<const CudaEventState&>(*event.state());
  if (!state.failure().ok()) return Fail(state.failure());
  const cudaError_t code = cudaStreamWaitEvent(stream_, state.event(), 0);
  if (code != cudaSuccess) Fail(CudaStatus(code, "cudaStreamWaitEvent"));
}

Status CudaQueue::Synchronize() {
  if (stream_ != nullptr) {
    const cudaError_t code = cudaStreamSynchronize(stream_);
    if (code != cudaSuccess) Fail(CudaStatus(code, "cudaStreamSynchronize"));
  }
  return failure_;
}

const Status& CudaQueue::FailureBefore(const Event& event) {
  return static_cast<const CudaEventState&>(*event.state()).failure();
}

// Other threads call this too, so it leaves the queue as it is.
Status CudaQueue::Await(const Event& event) { return AwaitOnHost(event); }

Status CudaQueue::AwaitOnHost(const Event& event) {
  if (event.state() == nullptr) return OkStatus();
  const auto& state = static_cast<const CudaEventState&>(*event.state());
  const cudaError_t code =
      state.event() == nullptr ? cudaSuccess : cudaEventSynchronize(state.event());
  if (!state.failure().ok()) return state.failure();
  return CudaStatus(code, "cudaEventSynchronize");
}

void CudaQueue::Fail(Status error) {
  if (failure_.ok()) failure_ = std::move(error);
}

std::byte* CudaQueue::Scratch(std::uint64_t size_bytes) {
  if (scratch_.size_bytes() < size_bytes) {
    if (!Synchronize().ok()) return nullptr;
    scratch_ = Buffer();
    Result<Buffer> larger = device_.Allocate(size_bytes, MemoryUse::kOther);
    if (!larger.ok()) {
      Fail(larger.status());
      return nullptr;
    }
    scratch_ = std::move(larger).value();
  }
  return has_failed() ? nullptr : scratch_.data();
}

}  // namespace ckpt::trainer
