#include "trainer/params/piece_rows.h"

#include <algorithm>
#include <cstddef>
#include <utility>

#include "core/base/check.h"

namespace ckpt::trainer {
namespace {

constexpr std::int64_t kBlockElems = 64 << 10;

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
                       const FillRows& fill, Queue& queue) {
  std::int64_t staged_elems = 0;
  for (const ParamPiece& piece : pieces) {
    staged_elems = std::max(staged_elems, RowsAtOnce(piece) * piece.row_elems);
  }
  CKPT_RETURN_IF_ERROR(Reserve(staged_elems));
  std::size_t turn = 0;
  for (const ParamPiece& piece : pieces) {
    const Tensor elements = ElementsOf(piece, array);
    for (std::int64_t row = 0; row < piece.rows; row += RowsAtOnce(piece)) {
      const std::int64_t rows = std::min(RowsAtOnce(piece), piece.rows - row);
      Half& half = halves_[turn++ % halves_.size()];
      CKPT_RETURN_IF_ERROR(queue.Await(half.read));
      const std::span floats(reinterpret_cast<float*>(half.memory.data()),
                             static_cast<std::size_t>(rows * piece.row_elems));
      CKPT_RETURN_IF_ERROR(fill(*piece.spec, piece.row_begin + row, rows, floats));
      CKPT_RETURN_IF_ERROR(Write(
          floats.data(), elements.Rows(row * piece.row_elems, rows * piece.row_elems), queue));
      half.read = queue.Record();
    }
  }
  return queue.Synchronize();
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
