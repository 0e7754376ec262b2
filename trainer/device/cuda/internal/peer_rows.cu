// Sums of all ranks' parts, row by row: what is summed is squared before it leaves the registers.
#include <algorithm>
#include <cstdint>

#include "core/base/check.h"
#include "trainer/device/cuda/internal/peer_kernels.h"
#include "trainer/device/cuda/internal/peer_parts.cuh"
#include "trainer/device/cuda/packs.cuh"
#include "trainer/device/cuda/row_squares.cuh"
#include "trainer/device/cuda/run_batch.cuh"

namespace ckpt::trainer::cuda {
namespace {

constexpr int kWarps = kReduceThreads / kWarp;  // of a block

// Rows of one length that follow each other.
struct RowRun {
  std::int64_t begin = 0;  // element of the result
  std::int64_t columns = 0;
  double* squares = nullptr;  // null: elements between rows, which are not a row
  std::int64_t end = 0;       // rows of the batch
  bool fits_packs = false;
};

// What this lane adds of a row: packs `lane`, lane + 32, …, some at once, so that enough of them
// are under way to fill the links.
template <int kRanks, typename Stored, typename Out>
__device__ __forceinline__ double SumPacksOfRow(const Parts& parts, Out* out, bool adds,
                                                std::int64_t begin, std::int64_t columns) {
  constexpr int kAtOnce = 8 / kRanks;
  const std::int64_t end = (begin + columns) / kPackWidth;
  double sum = 0;
  for (std::int64_t first = begin / kPackWidth + threadIdx.x % kWarp; first < end;
       first += kAtOnce * kWarp) {
    Pack<Stored, kPackWidth> packs[kAtOnce][kRanks];
#pragma unroll
    for (int i = 0; i < kAtOnce; ++i) {
      if (first + i * kWarp < end) LoadParts(parts, first + i * kWarp, packs[i]);
    }
#pragma unroll
    for (int i = 0; i < kAtOnce; ++i) {
      if (first + i * kWarp >= end) break;
      float values[kPackWidth];
      SumPacks<0, kRanks>(packs[i], values);
      const auto written = WriteSums(out, first + i * kWarp, values, adds);
#pragma unroll
      for (int v = 0; v < kPackWidth; ++v) values[v] = Widen(written.values[v]);
      AddSquaresOf(values, sum);
    }
  }
  return sum;
}

// The same, element by element, of any number of ranks.
template <typename Stored, typename Out>
__device__ __forceinline__ double SumElementsOfRow(const Parts& parts, Out* out, bool adds,
                                                   std::int64_t begin, std::int64_t columns) {
  double sum = 0;
  for (std::int64_t i = begin + threadIdx.x % kWarp; i < begin + columns; i += kWarp) {
    Write(out[i], CombineAt<Stored, float, Add>(parts, i), adds);
    const float values[] = {Widen(out[i])};
    AddSquaresOf(values, sum);
  }
  return sum;
}

// A warp for a row, or for several where that would take more blocks than there are. kRanks: 1
// where their number is not 2, 4 or 8; of several, no run fits packs then.
template <int kRanks, typename Stored, typename Out>
__global__ void __launch_bounds__(kReduceThreads)
    SumRowsKernel(const __grid_constant__ Parts parts,
                  const __grid_constant__ RunBatch<RowRun> batch, Out* out, bool adds) {
  const std::int64_t stride = static_cast<std::int64_t>(gridDim.x) * kWarps;
  for (std::int64_t row = static_cast<std::int64_t>(blockIdx.x) * kWarps + threadIdx.x / kWarp;
       row < batch.End(); row += stride) {
    const int index = batch.RunOf(row);
    const auto& run = batch.runs[index];
    const std::int64_t row_of_run = row - batch.Begin(index);
    const std::int64_t begin = run.begin + row_of_run * run.columns;
    const double sum = SumOfWarp(
        run.fits_packs ? SumPacksOfRow<kRanks, Stored>(parts, out, adds, begin, run.columns)
                       : SumElementsOfRow<Stored>(parts, out, adds, begin, run.columns));
    if (run.squares != nullptr && threadIdx.x % kWarp == 0) run.squares[row_of_run] = sum;
  }
}

// Collects runs, and launches as many batches as they need.
template <int kRanks, typename Stored, typename Out>
class RowSummer {
 public:
  RowSummer(cudaStream_t stream, const PeerReduction& reduction, unsigned int max_blocks)
      : stream_(stream),
        parts_(reduction),
        out_(reinterpret_cast<Out*>(reduction.out)),
        adds_(reduction.write == GradWrite::kAdd),
        max_blocks_(max_blocks),
        fits_packs_(parts_.count == kRanks && parts_.AreAlignedWith(out_)) {}

  // `squares` null: nobody wants them.
  void Add(std::int64_t begin, std::int64_t rows, std::int64_t columns, double* squares) {
    if (rows == 0 || columns == 0) return;
    if (batch_.is_full()) Launch();
    const bool fits = fits_packs_ && begin % kPackWidth == 0 && columns % kPackWidth == 0;
    batch_.runs[batch_.num_runs] = {.begin = begin,
                                    .columns = columns,
                                    .squares = squares,
                                    .end = batch_.End() + rows,
                                    .fits_packs = fits};
    ++batch_.num_runs;
  }

  // Elements that belong to no row, in pieces for many warps.
  void AddGap(std::int64_t begin, std::int64_t end) {
    constexpr std::int64_t kPiece = 2048;
    const std::int64_t pieces = (end - begin) / kPiece;
    Add(begin, pieces, kPiece, nullptr);
    Add(begin + pieces * kPiece, 1, (end - begin) % kPiece, nullptr);
  }

  void Launch() {
    if (batch_.num_runs == 0) return;
    const auto blocks = std::min<std::int64_t>(max_blocks_, (batch_.End() + kWarps - 1) / kWarps);
    SumRowsKernel<kRanks, Stored, Out>
        <<<static_cast<unsigned int>(blocks), kReduceThreads, 0, stream_>>>(parts_, batch_, out_,
                                                                            adds_);
    batch_.num_runs = 0;
  }

 private:
  const cudaStream_t stream_;
  const Parts parts_;
  Out* const out_;
  const bool adds_;
  const unsigned int max_blocks_;
  const bool fits_packs_;
  RunBatch<RowRun> batch_;
};

template <int kRanks, typename Stored, typename Out>
void SumAll(cudaStream_t stream, const PeerReduction& reduction, unsigned int max_blocks) {
  RowSummer<kRanks, Stored, Out> summer(stream, reduction, max_blocks);
  std::int64_t done = 0;
  for (const ShardRows& rows : reduction.rows) {
    CKPT_CHECK(done <= rows.begin && rows.end() <= reduction.count && rows.columns > 0);
    summer.AddGap(done, rows.begin);
    summer.Add(rows.begin, rows.rows(), rows.columns, rows.squares.as<double>());
    done = rows.end();
  }
  summer.AddGap(done, reduction.count);
  summer.Launch();
}

template <typename Stored, typename Out>
void SumOfRanks(cudaStream_t stream, const PeerReduction& reduction, unsigned int max_blocks) {
  switch (reduction.parts.size()) {
    case 2:
      return SumAll<2, Stored, Out>(stream, reduction, max_blocks);
    case 4:
      return SumAll<4, Stored, Out>(stream, reduction, max_blocks);
    case 8:
      return SumAll<8, Stored, Out>(stream, reduction, max_blocks);
    default:
      return SumAll<1, Stored, Out>(stream, reduction, max_blocks);
  }
}

template <typename Stored>
void SumTo(cudaStream_t stream, const PeerReduction& reduction, unsigned int max_blocks) {
  if (reduction.result == DType::kFloat32) {
    return SumOfRanks<Stored, float>(stream, reduction, max_blocks);
  }
  CKPT_CHECK(reduction.result == DType::kBfloat16);
  SumOfRanks<Stored, Bf16>(stream, reduction, max_blocks);
}

}  // namespace

void SumRows(cudaStream_t stream, const PeerReduction& reduction, unsigned int max_blocks) {
  CKPT_CHECK(reduction.op == ReduceOp::kSum);
  if (reduction.wire == DType::kFloat32) return SumTo<float>(stream, reduction, max_blocks);
  CKPT_CHECK(reduction.wire == DType::kBfloat16);
  SumTo<Bf16>(stream, reduction, max_blocks);
}

}  // namespace ckpt::trainer::cuda
