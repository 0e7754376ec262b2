#include "trainer/device/cuda/internal/cuda_peer_reader.h"

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include <cuda_runtime_api.h>

#include "trainer/comm/exchange_values.h"
#include "trainer/device/cuda/cuda_queue.h"
#include "trainer/device/cuda/cuda_status.h"
#include "trainer/device/cuda/internal/peer_kernels.h"

namespace ckpt::trainer {
namespace {

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
  // The kernel reads other GPUs' memory itself, on as few multiprocessors as fill the links.
  void Reduce(Queue& queue, const PeerReduction& reduction) override {
    if (reduction.count == 0) return;
    const bool are_here = std::ranges::all_of(gpus_, [&](int gpu) { return gpu == own_; });
    RunOnCuda(queue, [&](CudaQueue& cuda) {
      cuda::ReduceParts(cuda.stream(), reduction,
                        are_here ? cuda::kLocalBlocks : cuda::kLinkBlocks);
    });
  }
  void ReceiveRows(Queue& queue, int rank, std::vector<PeerRows> sent,
                   const PeerRows& received) override {
    if (received.rows.num_elems() == 0) return;
    RunOnCuda(queue,
              [&](CudaQueue& cuda) { cuda::ReceiveRows(cuda.stream(), rank, sent, received); });
  }

 private:
  const std::vector<int> gpus_;
  const int own_;
};

}  // namespace

Result<std::unique_ptr<PeerReader>> MakeCudaPeerReader(HostGroup& group) {
  int own = 0;
  CKPT_RETURN_IF_ERROR(CudaStatus(cudaGetDevice(&own), "cudaGetDevice"));
  CKPT_ASSIGN_OR_RETURN(std::vector<int> of_ranks, ExchangeValues(group, own));
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
