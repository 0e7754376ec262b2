#include "trainer/device/cuda/internal/nccl_collectives.h"

#include <memory>
#include <numeric>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

#include <cuda_runtime_api.h>
#include <nccl.h>

#include "core/base/check.h"
#include "trainer/comm/agreement.h"
#include "trainer/comm/call_track.h"
#include "trainer/comm/exchange_values.h"
#include "trainer/device/cuda/cuda_queue.h"
#include "trainer/device/cuda/internal/nccl_memory.h"
#include "trainer/device/cuda/internal/nccl_watchdog.h"
#include "trainer/device/cuda/internal/peer_kernels.h"
#include "trainer/device/rank_slices.h"

namespace ckpt::trainer {
namespace {

// Bytes of this rank's memory that go to another rank, or that it receives.
struct Piece {
  std::byte* data = nullptr;
  std::uint64_t size_bytes = 0;
};

class NcclCollectives final : public Collectives {
 public:
  NcclCollectives(std::unique_ptr<HostGroup> group, const NcclLibrary& nccl,
                  ncclComm_t communicator, std::shared_ptr<CallTrack> track,
                  std::shared_ptr<CallTrack> host_track, NcclWatchdog& watchdog, Device& device)
      : Collectives(std::move(group)),
        nccl_(nccl),
        communicator_(communicator),
        host_track_(std::move(host_track)),
        watchdog_(watchdog),
        counts_(device, size()),
        memory_(nccl, communicator, device) {
    watchdog_.Add(nccl_, communicator_, host(), std::move(track));
  }
  // The queues were synchronised: nothing is under way.
  ~NcclCollectives() override {
    watchdog_.Remove(communicator_);
    memory_.Forget();
    (void)nccl_.destroy(communicator_);
  }

  void AllGather(Queue& queue, const Tensor& shard, const Tensor& full) override {
    CKPT_CHECK(shard.dtype == full.dtype && shard.num_elems() * size() == full.num_elems());
    if (full.num_elems() == 0) return;
    Run(queue, "an all-gather", full.size_bytes(), [&](CudaQueue& cuda) {
      return nccl_.all_gather(shard.data, full.data, shard.size_bytes(), ncclUint8, communicator_,
                              cuda.stream());
    });
  }

  // Every rank sends each other one its part, and adds up what it gets: as many bytes as NCCL's own
  // reduce-scatter sends, which would round bfloat16 at every step of a ring.
  void ReduceScatterInto(Queue& queue, const Tensor& full, const Tensor& shard, GradWrite write,
                         std::span<const ShardRows> rows) override {
    CKPT_CHECK(shard.num_elems() * size() == full.num_elems());
    const std::uint64_t part_bytes = full.size_bytes() / static_cast<std::uint64_t>(size());
    ReduceSlices(queue, "a reduce-scatter", full.bytes(),
                 [part_bytes](int rank) { return static_cast<std::uint64_t>(rank) * part_bytes; },
                 {.wire = full.dtype,
                  .parts = {},
                  .result = shard.dtype,
                  .write = write,
                  .out = shard.bytes(),
                  .count = shard.num_elems(),
                  .rows = {rows.begin(), rows.end()}});
  }
  [[nodiscard]] bool LeavesSquares() const override { return true; }

  void ScatterParts(Queue& queue, const Tensor& full, std::span<const Tensor> terms) override {
    CheckTerms(full, terms);
    const std::uint64_t part_bytes = full.size_bytes() / static_cast<std::uint64_t>(size());
    Exchange(
        queue, "a reduce-scatter that keeps the terms",
        [&](int peer) {
          return Piece{full.bytes() + static_cast<std::uint64_t>(peer) * part_bytes, part_bytes};
        },
        [&](int peer) {
          return Piece{terms[static_cast<std::size_t>(peer)].bytes(), part_bytes};
        });
  }

  void AllReduce(Queue& queue, const Tensor& data, ReduceOp op) override {
    CKPT_CHECK(op == ReduceOp::kSum || data.dtype != DType::kBfloat16);
    if (data.num_elems() == 0) return;
    const RankSlices slices(data, size());
    ReduceSlices(queue, "the first half of an all-reduce", data.bytes(),
                 [&](int rank) { return slices.offset_bytes(rank); },
                 {.op = op,
                  .wire = data.dtype,
                  .parts = {},
                  .result = data.dtype,
                  .out = data.bytes() + slices.offset_bytes(rank()),
                  .count = slices.num_elems(rank())});
    const auto piece_of = [&](int peer) {
      return Piece{data.bytes() + slices.offset_bytes(peer), slices.size_bytes(peer)};
    };
    Exchange(
        queue, "the second half of an all-reduce", [&](int) { return piece_of(rank()); }, piece_of);
  }

  RowCounts ReadCounts(Queue& queue, const Tensor& counts) override {
    return counts_.Read(queue, counts);
  }
  // NCCL takes sizes from the host.
  void AllToAll(Queue& queue, std::span<const RowTransfer> transfers, const RowCounts& send_rows,
                const RowCounts& receive_rows) override {
    const auto sent = send_rows.OnHost();
    const auto received = receive_rows.OnHost();
    if (!sent.ok() || !received.ok()) {
      return queue.Fail(sent.ok() ? received.status() : sent.status());
    }
    for (const RowTransfer& transfer : transfers) {
      const std::uint64_t row_bytes =
          transfer.send.dim(0) == 0
              ? 0
              : transfer.send.size_bytes() / static_cast<std::uint64_t>(transfer.send.dim(0));
      const auto piece_of = [&](const Tensor& rows, std::span<const std::int64_t> of_ranks,
                                int peer) {
        const auto here = static_cast<std::size_t>(peer);
        const std::int64_t before =
            std::accumulate(of_ranks.begin(), of_ranks.begin() + peer, std::int64_t{0});
        CKPT_CHECK(before + of_ranks[here] <= rows.dim(0));
        return Piece{rows.bytes() + static_cast<std::uint64_t>(before) * row_bytes,
                     static_cast<std::uint64_t>(of_ranks[here]) * row_bytes};
      };
      Exchange(
          queue, "an all-to-all", [&](int peer) { return piece_of(transfer.send, *sent, peer); },
          [&](int peer) { return piece_of(transfer.receive, *received, peer); });
    }
  }

  void Register(const Buffer& memory) override {
    if (registered_.ok()) registered_ = memory_.Register(memory.data(), memory.size_bytes());
  }
  void Leave() override { memory_.Forget(); }

 private:
  // Enqueues what `enqueue(CudaQueue&)` does of NCCL, and lets the watchdog know.
  template <typename Enqueue>
  void Run(Queue& queue, std::string_view call, std::uint64_t size_bytes, const Enqueue& enqueue) {
    RunOnCuda(queue, [&](CudaQueue& cuda) {
      if (!registered_.ok()) return cuda.Fail(registered_);
      ncclResult_t code = ncclSuccess;
      {
        const TrackedCall tracked(*host_track_, call, size_bytes);
        code = enqueue(cuda);
      }
      if (code != ncclSuccess) return cuda.Fail(nccl_.StatusOf(code, call, communicator_));
      Status watched = watchdog_.Watch(communicator_, call, size_bytes, cuda.stream());
      if (!watched.ok()) cuda.Fail(std::move(watched));
    });
  }

  // Sends `sent(r)` to every rank r and receives `received(r)` from it. Copies this rank's own.
  template <typename Sent, typename Received>
  void Exchange(Queue& queue, std::string_view call, const Sent& sent, const Received& received) {
    std::uint64_t size_bytes = 0;
    for (int peer = 0; peer < size(); ++peer) size_bytes += received(peer).size_bytes;
    Run(queue, call, size_bytes, [&](CudaQueue& cuda) {
      const Piece own = sent(rank());
      if (std::byte* const to = received(rank()).data; to != own.data && own.size_bytes > 0) {
        (void)cudaMemcpyAsync(to, own.data, own.size_bytes, cudaMemcpyDeviceToDevice,
                              cuda.stream());
      }
      ncclResult_t code = nccl_.group_start();
      for (int i = 1; i < size() && code == ncclSuccess; ++i) {
        const int to = (rank() + i) % size();
        const int from = (rank() - i + size()) % size();
        const Piece there = sent(to);
        const Piece here = received(from);
        if (there.size_bytes > 0) {
          code =
              nccl_.send(there.data, there.size_bytes, ncclUint8, to, communicator_, cuda.stream());
        }
        if (here.size_bytes > 0 && code == ncclSuccess) {
          code = nccl_.receive(here.data, here.size_bytes, ncclUint8, from, communicator_,
                               cuda.stream());
        }
      }
      const ncclResult_t end = nccl_.group_end();
      return code == ncclSuccess ? end : code;
    });
  }

  // Slice r of every rank's array, bytes [offset_of(r), offset_of(r + 1)), goes to rank r, which
  // reduces them as `reduction` says.
  template <typename OffsetOf>
  void ReduceSlices(Queue& queue, std::string_view call, std::byte* array,
                    const OffsetOf& offset_of, PeerReduction reduction) {
    const std::uint64_t own_bytes =
        static_cast<std::uint64_t>(reduction.count) * ElementBytes(reduction.wire);
    const std::uint64_t stride = (own_bytes + 255) / 256 * 256;
    const Result<std::byte*> received =
        memory_.Scratch(queue, stride * static_cast<std::uint64_t>(size()) + 1);
    if (!received.ok()) return queue.Fail(received.status());
    const auto own = [&](int peer) {
      return peer == rank() ? array + offset_of(rank())
                            : *received + static_cast<std::uint64_t>(peer) * stride;
    };
    Exchange(
        queue, call,
        [&](int peer) {
          return Piece{array + offset_of(peer), offset_of(peer + 1) - offset_of(peer)};
        },
        [&](int peer) {
          return Piece{own(peer), own_bytes};
        });
    if (reduction.count == 0) return;
    for (int peer = 0; peer < size(); ++peer) reduction.parts.push_back(own(peer));
    RunOnCuda(queue, [&](CudaQueue& cuda) {
      cuda::ReduceParts(cuda.stream(), reduction, cuda::kLocalBlocks);
    });
  }

  const NcclLibrary& nccl_;
  const ncclComm_t communicator_;
  // Of the host's calls, which the watchdog does not see: the first ones connect to other ranks.
  const std::shared_ptr<CallTrack> host_track_;
  NcclWatchdog& watchdog_;
  CountsReader counts_;
  NcclMemory memory_;
  Status registered_;  // of the memory that calls will use
};

}  // namespace

Result<std::unique_ptr<Collectives>> MakeNcclCollectives(const NcclLibrary& nccl,
                                                         std::unique_ptr<HostGroup> group,
                                                         Device& device, NcclWatchdog& watchdog) {
  ncclUniqueId id = {};
  Status made;
  if (group->rank() == 0) {
    made = nccl.StatusOf(nccl.get_unique_id(&id), "ncclGetUniqueId", nullptr);
  }
  CKPT_ASSIGN_OR_RETURN(const std::vector<ncclUniqueId> ids, ExchangeValues(*group, id));
  CKPT_RETURN_IF_ERROR(AgreeOn(*group, made));
  std::shared_ptr<CallTrack> track = group->MakeTrack("nccl");
  std::shared_ptr<CallTrack> host_track = group->MakeTrack("nccl-host");
  CKPT_CHECK(track != nullptr && host_track != nullptr);
  ncclComm_t communicator = nullptr;
  {
    const TrackedCall call(*track, "ncclCommInitRank", 0);
    CKPT_RETURN_IF_ERROR(
        nccl.StatusOf(nccl.init_rank(&communicator, group->size(), ids.front(), group->rank()),
                      "ncclCommInitRank", nullptr));
  }
  return std::unique_ptr<Collectives>(
      std::make_unique<NcclCollectives>(std::move(group), nccl, communicator, std::move(track),
                                        std::move(host_track), watchdog, device));
}

}  // namespace ckpt::trainer
