// The exchange of rows between the ranks that divide the experts.
#include <cstdint>

#include "core/base/check.h"
#include "trainer/ops/cuda/cuda_ops_impl.h"
#include "trainer/ops/cuda/kernel.cuh"

namespace ckpt::trainer {
namespace cuda {
namespace {

// A thread for each element of `ranks`.
__global__ void ChosenRanksKernel(const std::int32_t* experts, std::int64_t tokens, int topk,
                                  int num_held, int num_ranks, std::int32_t* ranks) {
  AwaitEarlier();
  const std::int64_t i = static_cast<std::int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
  if (i >= tokens * num_ranks) return;
  const std::int32_t* const choices = experts + i / num_ranks * topk;
  const auto rank = static_cast<std::int32_t>(i % num_ranks);
  bool is_chosen = false;
  for (int k = 0; k < topk; ++k) {
    is_chosen = is_chosen || (choices[k] >= 0 && choices[k] / num_held == rank);
  }
  ranks[i] = is_chosen ? rank : -1;
}

// The offsets of all ranks [P, E + 1]: how many rows every rank sends to every expert.
struct SentRows {
  const std::int32_t* offsets = nullptr;
  int num_ranks = 1;
  int num_experts = 1;

  [[nodiscard]] __host__ __device__ int num_held() const { return num_experts / num_ranks; }
  // Experts [begin, end).
  [[nodiscard]] __device__ std::int32_t Between(int source, int begin, int end) const {
    const std::int32_t* const at = offsets + static_cast<std::int64_t>(source) * (num_experts + 1);
    return at[end] - at[begin];
  }
  [[nodiscard]] __device__ std::int32_t ToRank(int source, int rank) const {
    return Between(source, rank * num_held(), (rank + 1) * num_held());
  }
  [[nodiscard]] __device__ std::int64_t Received(int rank) const {
    std::int64_t rows = 0;
    for (int source = 0; source < num_ranks; ++source) rows += ToRank(source, rank);
    return rows;
  }
};

struct Planned {
  std::int64_t* send_rows = nullptr;
  std::int64_t* receive_rows = nullptr;
  std::int32_t* offsets = nullptr;
  std::int64_t* overflows = nullptr;
  std::int64_t max_rows = 0;
  bool separates_sources = false;
};

// By one block. A range of rows is those of one expert from one source: range h·P + s of expert h
// held here and source s begins at `range_begins`, and is received from `range_sources` on.
__global__ void PlanKernel(SentRows sent, int rank, Planned planned, std::int32_t* range_begins,
                           std::int32_t* range_sources) {
  AwaitEarlier();
  extern __shared__ std::int32_t sizes[];
  const int num_ranks = sent.num_ranks;
  const int num_ranges = sent.num_experts;  // num_held · P
  const int first = rank * sent.num_held();
  bool has_no_room = false;
  for (int peer = threadIdx.x; peer < num_ranks; peer += blockDim.x) {
    has_no_room = has_no_room || sent.Received(peer) > planned.max_rows;
  }
  has_no_room = __syncthreads_or(has_no_room) != 0;
  for (int range = threadIdx.x; range < num_ranges; range += blockDim.x) {
    const int expert = first + range / num_ranks;
    sizes[range] = has_no_room ? 0 : sent.Between(range % num_ranks, expert, expert + 1);
  }
  for (int peer = threadIdx.x; peer < num_ranks; peer += blockDim.x) {
    planned.send_rows[peer] = has_no_room ? 0 : sent.ToRank(rank, peer);
    planned.receive_rows[peer] = has_no_room ? 0 : sent.ToRank(peer, rank);
  }
  if (threadIdx.x == 0 && has_no_room) ++*planned.overflows;
  __syncthreads();
  for (int range = threadIdx.x; range <= num_ranges; range += blockDim.x) {
    std::int32_t begin = 0;
    for (int before = 0; before < range; ++before) begin += sizes[before];
    range_begins[range] = begin;
    if (planned.separates_sources) {
      planned.offsets[range] = begin;
    } else if (range % num_ranks == 0) {
      planned.offsets[range / num_ranks] = begin;
    }
    if (range == num_ranges) continue;
    const int source = range % num_ranks;
    std::int32_t received = sent.Between(source, first, first + range / num_ranks);
    for (int before = 0; before < source; ++before) received += sent.ToRank(before, rank);
    range_sources[range] = received;
  }
}

// A block for each range.
__global__ void ArrivalKernel(const std::int32_t* range_begins, const std::int32_t* range_sources,
                              std::int32_t* arrival) {
  AwaitEarlier();
  const std::int32_t begin = range_begins[blockIdx.x];
  const std::int32_t rows = range_begins[blockIdx.x + 1] - begin;
  const std::int32_t source = range_sources[blockIdx.x];
  for (std::int32_t i = threadIdx.x; i < rows; i += blockDim.x) arrival[begin + i] = source + i;
}

constexpr int kMoveThreads = 128;

// threadIdx.y is a row, threadIdx.x a part of it.
template <bool kScatters, typename Unit>
__global__ void __launch_bounds__(kMoveThreads)
    MoveRowsKernel(const Unit* x, const std::int32_t* index, const std::int32_t* count,
                   std::int64_t max_rows, std::int64_t row_units, Unit* y) {
  AwaitEarlier();
  const std::int64_t row = static_cast<std::int64_t>(blockIdx.x) * blockDim.y + threadIdx.y;
  if (row >= min(static_cast<std::int64_t>(*count), max_rows)) return;
  const std::int64_t place = index[row];
  const Unit* const from = x + (kScatters ? row : place) * row_units;
  Unit* const to = y + (kScatters ? place : row) * row_units;
  for (std::int64_t i = threadIdx.x; i < row_units; i += blockDim.x) to[i] = from[i];
}

template <bool kScatters>
void MoveRows(cudaStream_t stream, const Tensor& x, const Tensor& index, const Tensor& count,
              const Tensor& y) {
  const std::int64_t rows = index.num_elems();
  const std::int64_t row_bytes = static_cast<std::int64_t>(x.size_bytes()) / rows;
  const auto move = [&](auto unit) {
    using Unit = decltype(unit);
    const std::int64_t row_units = row_bytes / static_cast<std::int64_t>(sizeof(Unit));
    unsigned int across = 1;
    while (across < kMoveThreads && across < row_units) across *= 2;
    const dim3 threads(across, kMoveThreads / across);
    Launch(stream, MoveRowsKernel<kScatters, Unit>, {Blocks(rows, threads.y), threads},
           x.as<const Unit>(), index.as<const std::int32_t>(), count.as<const std::int32_t>(), rows,
           row_units, y.as<Unit>());
  };
  // The largest unit of which rows and addresses are multiples.
  const std::uint64_t all = static_cast<std::uint64_t>(row_bytes) |
                            reinterpret_cast<std::uintptr_t>(x.data) |
                            reinterpret_cast<std::uintptr_t>(y.data);
  if (all % sizeof(uint4) == 0) return move(uint4{});
  if (all % sizeof(std::uint32_t) == 0) return move(std::uint32_t{});
  move(std::uint8_t{});
}

void CheckMove(const Tensor& x, const Tensor& index, const Tensor& y) {
  CKPT_CHECK(index.dtype == DType::kInt32 && x.dtype == y.dtype && x.num_elems() == y.num_elems());
  const std::int64_t rows = index.num_elems();
  CKPT_CHECK(rows == 0 || (x.ndim > 0 && x.dim(0) == rows && y.dim(0) == rows));
}

}  // namespace
}  // namespace cuda

void CudaOps::ChosenRanks(Queue& queue, const Tensor& experts, std::int64_t num_held,
                          const Tensor& ranks) {
  CKPT_CHECK(experts.dtype == DType::kInt32 && experts.ndim == 2 && num_held > 0);
  CKPT_CHECK(ranks.dtype == DType::kInt32 && ranks.ndim == 2 && ranks.dim(0) == experts.dim(0));
  if (ranks.num_elems() == 0) return;
  RunOnCuda(queue, [&](CudaQueue& on) {
    cuda::Launch(on.stream(), cuda::ChosenRanksKernel,
                 {cuda::Blocks(ranks.num_elems(), cuda::kThreads), cuda::kThreads},
                 experts.as<const std::int32_t>(), experts.dim(0), static_cast<int>(experts.dim(1)),
                 static_cast<int>(num_held), static_cast<int>(ranks.dim(1)),
                 ranks.as<std::int32_t>());
  });
}

void CudaOps::PlanExchange(Queue& queue, std::int64_t rank, const Tensor& offsets,
                           const ExchangePlan& plan, const Tensor& overflows) {
  CKPT_CHECK(offsets.dtype == DType::kInt32 && offsets.ndim == 2);
  const std::int64_t num_ranks = offsets.dim(0);
  const std::int64_t num_experts = offsets.dim(1) - 1;
  CKPT_CHECK(rank >= 0 && rank < num_ranks && num_experts % num_ranks == 0);
  CKPT_CHECK(plan.send_rows.num_elems() == num_ranks && plan.receive_rows.num_elems() == num_ranks);
  const std::int64_t num_ranges = plan.offsets.num_elems() - 1;
  CKPT_CHECK(num_ranges == num_experts || num_ranges == num_experts / num_ranks);
  CKPT_CHECK(overflows.dtype == DType::kInt64 && overflows.num_elems() == 1);
  RunOnCuda(queue, [&](CudaQueue& on) {
    const std::uint64_t size_bytes =
        static_cast<std::uint64_t>(num_experts + 1) * sizeof(std::int32_t);
    std::byte* const scratch = on.Scratch(2 * cuda::AlignedBytes(size_bytes));
    if (scratch == nullptr) return;
    auto* const begins = reinterpret_cast<std::int32_t*>(scratch);
    auto* const sources = reinterpret_cast<std::int32_t*>(scratch + cuda::AlignedBytes(size_bytes));
    const cuda::SentRows sent = {.offsets = offsets.as<const std::int32_t>(),
                                 .num_ranks = static_cast<int>(num_ranks),
                                 .num_experts = static_cast<int>(num_experts)};
    const cuda::Planned planned = {.send_rows = plan.send_rows.as<std::int64_t>(),
                                   .receive_rows = plan.receive_rows.as<std::int64_t>(),
                                   .offsets = plan.offsets.as<std::int32_t>(),
                                   .overflows = overflows.as<std::int64_t>(),
                                   .max_rows = plan.arrival.num_elems(),
                                   .separates_sources = num_ranges == num_experts};
    cuda::Launch(on.stream(), cuda::PlanKernel, {1, cuda::kThreads, size_bytes}, sent,
                 static_cast<int>(rank), planned, begins, sources);
    cuda::Launch(on.stream(), cuda::ArrivalKernel,
                 {static_cast<unsigned int>(num_experts), cuda::kThreads}, begins, sources,
                 plan.arrival.as<std::int32_t>());
  });
}

void CudaOps::GatherRows(Queue& queue, const Tensor& x, const Tensor& index, const Tensor& count,
                         const Tensor& y) {
  cuda::CheckMove(x, index, y);
  if (y.num_elems() == 0) return;
  RunOnCuda(queue, [&](CudaQueue& on) {
    cuda::MoveRows</*kScatters=*/false>(on.stream(), x, index, count, y);
  });
}

void CudaOps::ScatterRows(Queue& queue, const Tensor& x, const Tensor& index, const Tensor& count,
                          const Tensor& y) {
  cuda::CheckMove(x, index, y);
  if (y.num_elems() == 0) return;
  RunOnCuda(queue, [&](CudaQueue& on) {
    cuda::MoveRows</*kScatters=*/true>(on.stream(), x, index, count, y);
  });
}

}  // namespace ckpt::trainer
