#include "trainer/device/cuda/internal/peer_kernels.h"

#include <algorithm>
#include <cstdint>
#include <type_traits>

#include "core/base/check.h"
#include "trainer/device/cuda/internal/peer_parts.cuh"

namespace ckpt::trainer::cuda {
namespace {

// How the kernels of one reduction are launched.
struct Launcher {
  cudaStream_t stream;
  unsigned int max_blocks;

  // Each thread has an item, or several where that would take more blocks than these.
  template <typename Kernel, typename... Args>
  void Launch(Kernel* kernel, std::int64_t items, const Args&... args) const {
    const auto blocks =
        std::min<std::int64_t>(max_blocks, (items + kReduceThreads - 1) / kReduceThreads);
    kernel<<<static_cast<unsigned int>(blocks), kReduceThreads, 0, stream>>>(args...);
  }
};

struct Max {
  template <typename T>
  __device__ T operator()(T a, T b) const {
    return a > b || a != a ? a : b;  // a NaN is unequal to itself
  }
};

template <typename Stored, typename Wide, typename Out, typename Combine>
__global__ void __launch_bounds__(kReduceThreads)
    ReduceKernel(Parts parts, Out* out, bool adds, std::int64_t begin, std::int64_t count) {
  const std::int64_t stride = static_cast<std::int64_t>(gridDim.x) * kReduceThreads;
  for (std::int64_t i =
           begin + static_cast<std::int64_t>(blockIdx.x) * kReduceThreads + threadIdx.x;
       i < count; i += stride) {
    Write(out[i], CombineAt<Stored, Wide, Combine>(parts, i), adds);
  }
}

// --- 16 bytes at once ----------------------------------------------------------------------------

template <int kRanks, typename Stored, typename Out>
__global__ void __launch_bounds__(kReduceThreads)
    SumPacksKernel(Parts parts, Out* out, bool adds, std::int64_t num_packs) {
  constexpr int kWidth = 16 / sizeof(Stored);
  const std::int64_t stride = static_cast<std::int64_t>(gridDim.x) * kReduceThreads;
  for (std::int64_t p = static_cast<std::int64_t>(blockIdx.x) * kReduceThreads + threadIdx.x;
       p < num_packs; p += stride) {
    Pack<Stored, kWidth> packs[kRanks];
    LoadParts(parts, p, packs);
    float sums[kWidth];
    SumPacks<0, kRanks>(packs, sums);
    WriteSums(out, p, sums, adds);
  }
}

// The number of elements from the front that were added in packs.
template <typename Stored, typename Out>
std::int64_t SumInPacks(const Launcher& launcher, const Parts& parts, Out* out, bool adds,
                        std::int64_t count) {
  constexpr int kWidth = 16 / sizeof(Stored);
  const std::int64_t num_packs = count / kWidth;
  if (num_packs == 0 || !parts.AreAlignedWith(out)) return 0;
  const auto launch = [&](auto kernel) {
    launcher.Launch(kernel, num_packs, parts, out, adds, num_packs);
  };
  switch (parts.count) {
    case 1:
      launch(SumPacksKernel<1, Stored, Out>);
      break;
    case 2:
      launch(SumPacksKernel<2, Stored, Out>);
      break;
    case 4:
      launch(SumPacksKernel<4, Stored, Out>);
      break;
    case 8:
      launch(SumPacksKernel<8, Stored, Out>);
      break;
    default:
      return 0;
  }
  return num_packs * kWidth;
}

// --- dtypes --------------------------------------------------------------------------------------

template <typename Stored, typename Wide, typename Combine, typename Out>
void Reduce(const Launcher& launcher, const PeerReduction& reduction, const Parts& parts) {
  auto* const out = reinterpret_cast<Out*>(reduction.out);
  const bool adds = reduction.write == GradWrite::kAdd;
  std::int64_t done = 0;
  if constexpr (std::is_same_v<Wide, float> && std::is_same_v<Combine, Add> &&
                !std::is_same_v<Out, double>) {
    done = SumInPacks<Stored>(launcher, parts, out, adds, reduction.count);
  }
  const std::int64_t left = reduction.count - done;
  if (left == 0) return;
  launcher.Launch(ReduceKernel<Stored, Wide, Out, Combine>, left, parts, out, adds, done,
                  reduction.count);
}

template <typename Stored, typename Wide>
void SumTo(const Launcher& launcher, const PeerReduction& reduction, const Parts& parts) {
  if (reduction.result == DType::kFloat32) {
    Reduce<Stored, Wide, Add, float>(launcher, reduction, parts);
  } else if (reduction.result == DType::kFloat64) {
    Reduce<Stored, Wide, Add, double>(launcher, reduction, parts);
  } else {
    CKPT_CHECK(reduction.result == DType::kBfloat16);
    Reduce<Stored, Wide, Add, Bf16>(launcher, reduction, parts);
  }
}

void Sum(const Launcher& launcher, const PeerReduction& reduction, const Parts& parts) {
  switch (reduction.wire) {
    case DType::kBfloat16:
      return SumTo<Bf16, float>(launcher, reduction, parts);
    case DType::kFloat32:
      return SumTo<float, float>(launcher, reduction, parts);
    case DType::kFloat64:
      return SumTo<double, double>(launcher, reduction, parts);
    default:
      break;
  }
  // Overflow is undefined for signed sums, but unsigned ones wrap; the bits are the same.
  CKPT_CHECK(reduction.result == reduction.wire);
  if (reduction.wire == DType::kInt64) {
    return Reduce<std::uint64_t, std::uint64_t, Add, std::uint64_t>(launcher, reduction, parts);
  }
  CKPT_CHECK(reduction.wire == DType::kInt32);
  Reduce<std::uint32_t, std::uint32_t, Add, std::uint32_t>(launcher, reduction, parts);
}

void FindMax(const Launcher& launcher, const PeerReduction& reduction, const Parts& parts) {
  CKPT_CHECK(reduction.result == reduction.wire && reduction.write == GradWrite::kStore);
  switch (reduction.wire) {
    case DType::kFloat32:
      return Reduce<float, float, Max, float>(launcher, reduction, parts);
    case DType::kFloat64:
      return Reduce<double, double, Max, double>(launcher, reduction, parts);
    case DType::kInt32:
      return Reduce<std::int32_t, std::int32_t, Max, std::int32_t>(launcher, reduction, parts);
    default:
      CKPT_CHECK(reduction.wire == DType::kInt64);
      return Reduce<std::int64_t, std::int64_t, Max, std::int64_t>(launcher, reduction, parts);
  }
}

// --- rows ----------------------------------------------------------------------------------------

struct Senders {
  const std::byte* rows[kMaxPeers];
  const std::int64_t* counts[kMaxPeers];  // to each rank
  std::int64_t room[kMaxPeers];           // rows that the memory has
  int count = 0;
};

constexpr int kReceiveThreads = 512;

// blockIdx.y is a sender; each rank begins with another one.
template <typename Unit>
__global__ void __launch_bounds__(kReceiveThreads)
    ReceiveKernel(Senders senders, int rank, std::int64_t row_units, Unit* received,
                  const std::int64_t* receive_rows, std::int64_t room) {
  __shared__ std::int64_t from, to, rows;
  const int peer = static_cast<int>((rank + blockIdx.y) % static_cast<unsigned int>(senders.count));
  if (threadIdx.x == 0) {
    from = 0;
    for (int other = 0; other < rank; ++other) from += senders.counts[peer][other];
    to = 0;
    for (int other = 0; other < peer; ++other) to += receive_rows[other];
    rows = min(senders.counts[peer][rank], receive_rows[peer]);
    rows = max(min(rows, min(senders.room[peer] - from, room - to)), std::int64_t{0});
  }
  __syncthreads();
  const Unit* const source = reinterpret_cast<const Unit*>(senders.rows[peer]) + from * row_units;
  Unit* const target = received + to * row_units;
  const std::int64_t units = rows * row_units;
  if (source == target) return;
  const std::int64_t stride = static_cast<std::int64_t>(gridDim.x) * kReceiveThreads;
  for (std::int64_t i = static_cast<std::int64_t>(blockIdx.x) * kReceiveThreads + threadIdx.x;
       i < units; i += stride) {
    target[i] = source[i];
  }
}

template <typename Unit>
void LaunchReceive(cudaStream_t stream, const Senders& senders, int rank, std::int64_t row_bytes,
                   const PeerRows& received) {
  const dim3 blocks(std::max(kLinkBlocks / static_cast<unsigned int>(senders.count), 1U),
                    static_cast<unsigned int>(senders.count));
  ReceiveKernel<<<blocks, kReceiveThreads, 0, stream>>>(
      senders, rank, row_bytes / static_cast<std::int64_t>(sizeof(Unit)), received.rows.as<Unit>(),
      received.counts.as<const std::int64_t>(), received.rows.dim(0));
}

}  // namespace

void ReduceParts(cudaStream_t stream, const PeerReduction& reduction, unsigned int max_blocks) {
  if (!reduction.rows.empty()) return SumRows(stream, reduction, max_blocks);
  const Parts parts(reduction);
  const Launcher launcher = {.stream = stream, .max_blocks = max_blocks};
  if (reduction.op == ReduceOp::kSum) return Sum(launcher, reduction, parts);
  FindMax(launcher, reduction, parts);
}

void ReceiveRows(cudaStream_t stream, int rank, std::span<const PeerRows> sent,
                 const PeerRows& received) {
  CKPT_CHECK(!sent.empty() && sent.size() <= kMaxPeers && received.rows.dim(0) > 0);
  const auto row_bytes =
      static_cast<std::int64_t>(received.rows.size_bytes()) / received.rows.dim(0);
  // The largest unit of which rows and addresses are multiples.
  std::uint64_t all =
      static_cast<std::uint64_t>(row_bytes) | reinterpret_cast<std::uintptr_t>(received.rows.data);
  Senders senders = {};
  for (const PeerRows& from : sent) {
    CKPT_CHECK(from.rows.dim(0) == 0 ||
               static_cast<std::int64_t>(from.rows.size_bytes()) / from.rows.dim(0) == row_bytes);
    senders.rows[senders.count] = from.rows.bytes();
    senders.counts[senders.count] = from.counts.as<const std::int64_t>();
    senders.room[senders.count] = from.rows.dim(0);
    ++senders.count;
    all |= reinterpret_cast<std::uintptr_t>(from.rows.data);
  }
  if (all % sizeof(uint4) == 0) {
    LaunchReceive<uint4>(stream, senders, rank, row_bytes, received);
  } else if (all % sizeof(std::uint32_t) == 0) {
    LaunchReceive<std::uint32_t>(stream, senders, rank, row_bytes, received);
  } else {
    LaunchReceive<std::uint8_t>(stream, senders, rank, row_bytes, received);
  }
}

}  // namespace ckpt::trainer::cuda
