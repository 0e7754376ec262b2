#include "trainer/params/piece_rows.h"

#include <algorithm>
#include <cstddef>
#include <vector>

#include "core/base/check.h"
#include "core/base/task_pool.h"

namespace ckpt::trainer {
namespace {

constexpr std::int64_t kBlockElems = 64 << 10;

// What one thread draws at once, and so many of them for each that one which lost its core for a
// while does not delay the others.
constexpr std::int64_t kDrawnElems = 128 << 10;
constexpr std::int64_t kBlocksPerThread = 4;

// Rows that one call of a FillRows writes.
struct RowBlock {
  const ParamPiece* piece = nullptr;
  std::int64_t row = 0;  // of the piece
  std::int64_t rows = 0;
  std::int64_t first_elem = 0;  // after the elements of the blocks before it

  [[nodiscard]] std::int64_t elems() const { return rows * piece->row_elems; }
};

std::vector<RowBlock> BlocksOf(std::span<const ParamPiece> pieces, int threads) {
  std::vector<RowBlock> blocks;
  std::int64_t elem = 0;
  for (const ParamPiece& piece : pieces) {
    const std::int64_t step =
        threads == 1 ? RowsAtOnce(piece) : std::max<std::int64_t>(1, kDrawnElems / piece.row_elems);
    for (std::int64_t row = 0; row < piece.rows; row += step) {
      blocks.push_back({.piece = &piece,
                        .row = row,
                        .rows = std::min(step, piece.rows - row),
                        .first_elem = elem});
      elem += blocks.back().elems();
    }
  }
  return blocks;
}

// How many of the first blocks are written together, one at least.
std::size_t BatchSize(std::span<const RowBlock> blocks, int threads) {
  if (threads == 1) return 1;
  const std::int64_t most = threads * kBlocksPerThread * kDrawnElems;
  std::size_t size = 1;
  while (size < blocks.size() &&
         blocks[size].first_elem + blocks[size].elems() - blocks.front().first_elem <= most) {
    ++size;
  }
  return size;
}

// The elements of the largest batch.
std::int64_t LargestBatch(std::span<const RowBlock> blocks, int threads) {
  std::int64_t largest = 0;
  while (!blocks.empty()) {
    const std::span<const RowBlock> batch = blocks.first(BatchSize(blocks, threads));
    largest = std::max(largest,
                       batch.back().first_elem + batch.back().elems() - batch.front().first_elem);
    blocks = blocks.subspan(batch.size());
  }
  return largest;
}

Tensor ElementsOf(const ParamPiece& piece, const Tensor& array) {
  return array.Rows(piece.main_offset, piece.rows * piece.row_elems);
}

}  // namespace

Status PieceRows::Reserve(std::int64_t elems) {
  const std::uint64_t size_bytes = static_cast<std::uint64_t>(elems) * sizeof(float);
  for (Half& half : halves_) {
    if (half.memory.size_bytes() >= size_bytes) continue;
    half.memory = PinnedBuffer();
    CKPT_ASSIGN_OR_RETURN(half.memory, device_->AllocatePinned(size_bytes));
  }
  return OkStatus();
}

Result<Tensor> PieceRows::Block(Buffer& memory, std::int64_t elems) {
  CKPT_CHECK(elems <= kBlockElems);
  if (memory.size_bytes() == 0) {
    CKPT_ASSIGN_OR_RETURN(memory,
                          device_->Allocate(kBlockElems * sizeof(float), MemoryUse::kOther));
  }
  return Tensor(memory.data(), DType::kFloat32, {elems});
}

Status PieceRows::Write(const float* host, const Tensor& elements, Queue& queue) {
  if (elements.dtype == DType::kFloat32) {
    device_->CopyFromHost(queue, host, elements);
    return OkStatus();
  }
  const std::int64_t num_elems = elements.num_elems();
  for (std::int64_t first = 0; first < num_elems; first += kBlockElems) {
    const std::int64_t elems = std::min(kBlockElems, num_elems - first);
    CKPT_ASSIGN_OR_RETURN(const Tensor block, Block(fill_block_, elems));
    device_->CopyFromHost(queue, host + first, block);
    ops_->Cast(queue, block, elements.Rows(first, elems));
  }
  return OkStatus();
}

Status PieceRows::Fill(std::span<const ParamPiece> pieces, const Tensor& array,
                       const FillRows& fill, Queue& queue, int threads) {
  Status filled = FillBlocks(pieces, array, fill, queue, threads);
  // After a failure too: the queue may still read what was written before it.
  Status taken = queue.Synchronize();
  return filled.ok() ? taken : filled;
}

Status PieceRows::FillBlocks(std::span<const ParamPiece> pieces, const Tensor& array,
                             const FillRows& fill, Queue& queue, int threads) {
  const std::vector<RowBlock> blocks = BlocksOf(pieces, threads);
  CKPT_RETURN_IF_ERROR(Reserve(LargestBatch(blocks, threads)));
  std::size_t turn = 0;
  for (std::span<const RowBlock> rest = blocks; !rest.empty();) {
    const std::span<const RowBlock> batch = rest.first(BatchSize(rest, threads));
    rest = rest.subspan(batch.size());
    Half& half = halves_[turn++ % halves_.size()];
    CKPT_RETURN_IF_ERROR(queue.Await(half.read));
    auto* const floats = reinterpret_cast<float*>(half.memory.data());
    const std::int64_t begin = batch.front().first_elem;  // of the half's memory
    CKPT_RETURN_IF_ERROR(
        RunTasks(batch.size(), threads, {}, [&](std::size_t task, std::size_t /*worker*/) {
          const RowBlock& block = batch[task];
          return fill(
              *block.piece->spec, block.piece->row_begin + block.row, block.rows,
              {floats + (block.first_elem - begin), static_cast<std::size_t>(block.elems())});
        }));
    for (const RowBlock& block : batch) {
      const Tensor elements = ElementsOf(*block.piece, array);
      CKPT_RETURN_IF_ERROR(Write(floats + (block.first_elem - begin),
                                 elements.Rows(block.row * block.piece->row_elems, block.elems()),
                                 queue));
    }
    half.read = queue.Record();
  }
  return OkStatus();
}

Status PieceRows::Read(std::span<const ParamPiece> pieces, const Tensor& array,
                       const PlaceRows& place, Queue& queue) {
  for (const ParamPiece& piece : pieces) {
    const MutableByteSpan host = place(piece);
    if (host.empty()) continue;
    const Tensor elements = ElementsOf(piece, array);
    const std::int64_t num_elems = elements.num_elems();
    CKPT_CHECK(host.size() == static_cast<std::size_t>(num_elems) * sizeof(float));
    if (array.dtype == DType::kFloat32) {
      device_->CopyToHost(queue, elements, host.data());
      continue;
    }
    for (std::int64_t first = 0; first < num_elems; first += kBlockElems) {
      const std::int64_t elems = std::min(kBlockElems, num_elems - first);
      CKPT_ASSIGN_OR_RETURN(const Tensor block, Block(read_block_, elems));
      ops_->Cast(queue, elements.Rows(first, elems), block);
      device_->CopyToHost(queue, block, &host[static_cast<std::size_t>(first) * sizeof(float)]);
    }
  }
  return OkStatus();
}

}  // namespace ckpt::trainer
