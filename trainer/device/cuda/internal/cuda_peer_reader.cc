#include "trainer/device/cuda/internal/cuda_peer_reader.h"

#include <algorithm>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <cuda_runtime_api.h>

#include "trainer/device/cuda/cuda_queue.h"
#include "trainer/device/cuda/cuda_status.h"
#include "trainer/device/cuda/internal/peer_kernels.h"

namespace ckpt::trainer {
namespace {

// Larger parts of other GPUs' memory are copied here before they are added. A kernel that read them
// would hold multiprocessors for as long as the links take, and kernels of products wait for all of
// them.
constexpr std::uint64_t kMostReadInPlaceBytes = std::uint64_t{1} << 20U;

class CudaPeerReader final : public PeerReader {
 public:
  // `gpus` of the ranks, and of this one.
  CudaPeerReader(std::vector<int> gpus, int own) : gpus_(std::move(gpus)), own_(own) {}

  void WaitFor(Queue& queue, int peer, const Event& event) override {
    if (const Status& failure = CudaQueue::FailureBefore(event); !failure.ok()) {
      return queue.Fail(GaveUp(peer, failure));
    }
    queue.Wait(event);
  }
  void Await(const Event& event) override { (void)CudaQueue::AwaitOnHost(event); }

  // A copy engine does it, and no multiprocessor. Within one GPU that is slower than a kernel, for
  // which the computation would wait.
  void Copy(Queue& queue, const std::byte* from, std::byte* to, std::uint64_t size_bytes) override {
    if (from == to || size_bytes == 0) return;
    RunOnCuda(queue, [=](CudaQueue& cuda) {
      cudaMemcpyAttributes attributes = {};
      attributes.srcAccessOrder = cudaMemcpySrcAccessOrderStream;
      attributes.flags = cudaMemcpyFlagPreferOverlapWithCompute;
      const void* source = from;
      void* target = to;
      std::size_t size = size_bytes;
      std::size_t first = 0;  // of the copies with these attributes
      (void)cudaMemcpyBatchAsync(&target, &source, &size, 1, &attributes, &first, 1, cuda.stream());
    });
  }
  void Reduce(Queue& queue, const PeerReduction& reduction) override {
    if (reduction.count == 0) return;
    PeerReduction here = reduction;
    const bool are_here = BringParts(queue, here);
    RunOnCuda(queue, [&](CudaQueue& cuda) {
      cuda::ReduceParts(cuda.stream(), here, are_here ? cuda::kLocalBlocks : cuda::kLinkBlocks);
    });
  }
  void ReceiveRows(Queue& queue, int rank, std::vector<PeerRows> sent,
                   const PeerRows& received) override {
    if (received.rows.num_elems() == 0) return;
    RunOnCuda(queue,
              [&](CudaQueue& cuda) { cuda::ReceiveRows(cuda.stream(), rank, sent, received); });
  }

 private:
  // Copies the parts of other GPUs into scratch memory of the queue, if they are large. Returns
  // whether all parts are on this GPU now.
  bool BringParts(Queue& queue, PeerReduction& reduction) {
    const std::uint64_t part_bytes =
        static_cast<std::uint64_t>(reduction.count) * ElementBytes(reduction.wire);
    const auto num_far = std::ranges::count_if(gpus_, [&](int gpu) { return gpu != own_; });
    if (num_far == 0) return true;
    if (part_bytes <= kMostReadInPlaceBytes) return false;
    const std::uint64_t stride = (part_bytes + 255) / 256 * 256;
    std::byte* place =
        static_cast<CudaQueue&>(queue).Scratch(static_cast<std::uint64_t>(num_far) * stride);
    if (place == nullptr) return true;  // the queue has failed and will run nothing
    for (std::size_t rank = 0; rank < gpus_.size(); ++rank) {
      if (gpus_[rank] == own_) continue;
      Copy(queue, reduction.parts[rank], place, part_bytes);
      reduction.parts[rank] = place;
      place += stride;
    }
    return true;
  }

  const std::vector<int> gpus_;
  const int own_;
};

}  // namespace

Result<std::unique_ptr<PeerReader>> MakeCudaPeerReader(HostGroup& group) {
  int own = 0;
  CKPT_RETURN_IF_ERROR(CudaStatus(cudaGetDevice(&own), "cudaGetDevice"));
  std::vector<int> of_ranks(static_cast<std::size_t>(group.size()));
  CKPT_RETURN_IF_ERROR(group.Exchange(std::as_bytes(std::span(&own, 1)),
                                      std::as_writable_bytes(std::span(of_ranks))));
  for (const int other : of_ranks) {
    if (other == own) continue;
    int can_read = 0;
    CKPT_RETURN_IF_ERROR(
        CudaStatus(cudaDeviceCanAccessPeer(&can_read, own, other), "cudaDeviceCanAccessPeer"));
    if (can_read == 0) {
      return Error(ErrorKind::kUnsupported, "two GPUs of this machine cannot read each other")
          .Expected("a path from GPU " + std::to_string(own) + " to GPU " + std::to_string(other))
          .Hint("nvidia-smi topo -p2p r shows which GPUs can; choose some by CUDA_VISIBLE_DEVICES");
    }
    const cudaError_t code = cudaDeviceEnablePeerAccess(other, 0);
    if (code == cudaErrorPeerAccessAlreadyEnabled) {
      (void)cudaGetLastError();  // by another group of the rank
      continue;
    }
    CKPT_RETURN_IF_ERROR(CudaStatus(code, "cudaDeviceEnablePeerAccess"));
  }
  return std::unique_ptr<PeerReader>(std::make_unique<CudaPeerReader>(std::move(of_ranks), own));
}

}  // namespace ckpt::trainer
