#include "trainer/device/cuda/internal/cuda_peer_reader.h"

#include <span>
#include <string>
#include <vector>

#include <cuda_runtime_api.h>

#include "trainer/device/cuda/cuda_queue.h"
#include "trainer/device/cuda/cuda_status.h"
#include "trainer/device/cuda/internal/peer_kernels.h"

namespace ckpt::trainer {
namespace {

class CudaPeerReader final : public PeerReader {
 public:
  void WaitFor(Queue& queue, int peer, const Event& event) override {
    if (const Status& failure = CudaQueue::FailureBefore(event); !failure.ok()) {
      return queue.Fail(GaveUp(peer, failure));
    }
    queue.Wait(event);
  }
  void Await(const Event& event) override { (void)CudaQueue::AwaitOnHost(event); }

  // Between two GPUs a copy engine does it, and no multiprocessor.
  void Copy(Queue& queue, const std::byte* from, std::byte* to, std::uint64_t size_bytes) override {
    if (from == to || size_bytes == 0) return;
    RunOnCuda(queue, [=](CudaQueue& cuda) {
      (void)cudaMemcpyAsync(to, from, size_bytes, cudaMemcpyDefault, cuda.stream());
    });
  }
  void Reduce(Queue& queue, const PeerReduction& reduction) override {
    if (reduction.count == 0) return;
    RunOnCuda(queue, [&](CudaQueue& cuda) { cuda::ReduceParts(cuda.stream(), reduction); });
  }
  void ReceiveRows(Queue& queue, int rank, std::vector<PeerRows> sent,
                   const PeerRows& received) override {
    if (received.rows.num_elems() == 0) return;
    RunOnCuda(queue,
              [&](CudaQueue& cuda) { cuda::ReceiveRows(cuda.stream(), rank, sent, received); });
  }
};

}  // namespace

Status EnablePeerAccess(HostGroup& group) {
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
  return OkStatus();
}

std::unique_ptr<PeerReader> MakeCudaPeerReader() { return std::make_unique<CudaPeerReader>(); }

}  // namespace ckpt::trainer
