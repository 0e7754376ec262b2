#include "trainer/params/piece_rows.h"

#include <algorithm>
#include <cstdint>
#include <vector>

#include "core/base/result.h"

namespace ckpt::trainer {
namespace {

constexpr std::int64_t kBlockElems = 64 << 10;

// A piece's elements of `array`, and room for them in float32 on either side.
struct Staging {
  Buffer memory;
  Tensor on_device;
  std::vector<float> on_host;
};

Result<Staging> StageFor(const ParamPiece& piece, Device& device) {
  Staging staging;
  const std::int64_t elems = piece.rows * piece.row_elems;
  staging.on_host.resize(static_cast<std::size_t>(elems));
  CKPT_ASSIGN_OR_RETURN(staging.memory,
                        device.Allocate(staging.on_host.size() * sizeof(float), MemoryUse::kOther));
  staging.on_device = Tensor(staging.memory.data(), DType::kFloat32, {elems});
  return staging;
}

Tensor ElementsOf(const ParamPiece& piece, const Tensor& array) {
  return array.Rows(piece.main_offset, piece.rows * piece.row_elems);
}

}  // namespace

Status FillPieces(std::span<const ParamPiece> pieces, const Tensor& array,
                  const ParamStore::FillRows& fill, Ops& ops, Device& device, Queue& queue) {
  for (const ParamPiece& piece : pieces) {
    CKPT_ASSIGN_OR_RETURN(Staging staging, StageFor(piece, device));
    CKPT_RETURN_IF_ERROR(fill(*piece.spec, piece.row_begin, piece.rows, staging.on_host));
    device.CopyFromHost(queue, staging.on_host.data(), staging.on_device);
    ops.Cast(queue, staging.on_device, ElementsOf(piece, array));
    CKPT_RETURN_IF_ERROR(queue.Synchronize());
  }
  return OkStatus();
}

Status TakePieces(std::span<const ParamPiece> pieces, const Tensor& array,
                  const ParamStore::TakeRows& take, Ops& ops, Device& device, Queue& queue) {
  // Few rows at a time stay in the cache until `take` has them.
  std::int64_t block_elems = kBlockElems;
  for (const ParamPiece& piece : pieces) block_elems = std::max(block_elems, piece.row_elems);
  std::vector<float> on_host(static_cast<std::size_t>(block_elems));
  Buffer cast_memory;
  const bool casts = array.dtype != DType::kFloat32;
  if (casts) {
    CKPT_ASSIGN_OR_RETURN(cast_memory,
                          device.Allocate(on_host.size() * sizeof(float), MemoryUse::kOther));
  }
  for (const ParamPiece& piece : pieces) {
    const std::int64_t block_rows = block_elems / piece.row_elems;
    for (std::int64_t row = 0; row < piece.rows; row += block_rows) {
      const std::int64_t rows = std::min(block_rows, piece.rows - row);
      const std::int64_t elems = rows * piece.row_elems;
      Tensor block = array.Rows(piece.main_offset + row * piece.row_elems, elems);
      if (casts) {
        const Tensor as_float(cast_memory.data(), DType::kFloat32, {elems});
        ops.Cast(queue, block, as_float);
        block = as_float;
      }
      device.CopyToHost(queue, block, on_host.data());
      CKPT_RETURN_IF_ERROR(queue.Synchronize());
      CKPT_RETURN_IF_ERROR(take(*piece.spec, piece.row_begin + row, rows,
                                std::span(on_host).first(static_cast<std::size_t>(elems))));
    }
  }
  return OkStatus();
}

}  // namespace ckpt::trainer
