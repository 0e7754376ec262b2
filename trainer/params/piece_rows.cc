#include "trainer/params/piece_rows.h"

#include <algorithm>
#include <cstdint>
#include <vector>

#include "core/base/check.h"
#include "core/base/result.h"

namespace ckpt::trainer {
namespace {

constexpr std::int64_t kBlockElems = 64 << 10;  // elements that are cast at a time

// Memory for casting elements of another dtype from or to float32, a block at a time: a whole
// embedding would be the largest allocation of a run. None if the array is float32.
Result<Buffer> AllocateBlock(const Tensor& array, Device& device) {
  if (array.dtype == DType::kFloat32) return Buffer();
  return device.Allocate(kBlockElems * sizeof(float), MemoryUse::kOther);
}

Tensor ElementsOf(const ParamPiece& piece, const Tensor& array) {
  return array.Rows(piece.main_offset, piece.rows * piece.row_elems);
}

}  // namespace

Status FillPieces(std::span<const ParamPiece> pieces, const Tensor& array,
                  const ParamStore::FillRows& fill, Ops& ops, Device& device, Queue& queue) {
  CKPT_ASSIGN_OR_RETURN(const Buffer block_memory, AllocateBlock(array, device));
  std::vector<float> host;
  for (const ParamPiece& piece : pieces) {
    const Tensor elements = ElementsOf(piece, array);
    const std::int64_t num_elems = elements.num_elems();
    host.resize(static_cast<std::size_t>(num_elems));
    CKPT_RETURN_IF_ERROR(fill(*piece.spec, piece.row_begin, piece.rows, host));
    if (array.dtype == DType::kFloat32) {
      device.CopyFromHost(queue, host.data(), elements);
    } else {
      for (std::int64_t first = 0; first < num_elems; first += kBlockElems) {
        const std::int64_t elems = std::min(kBlockElems, num_elems - first);
        const Tensor block(block_memory.data(), DType::kFloat32, {elems});
        device.CopyFromHost(queue, &host[static_cast<std::size_t>(first)], block);
        ops.Cast(queue, block, elements.Rows(first, elems));
      }
    }
    CKPT_RETURN_IF_ERROR(queue.Synchronize());  // before `host` is reused
  }
  return OkStatus();
}

Status ReadPieces(std::span<const ParamPiece> pieces, const Tensor& array,
                  const ParamStore::PlaceRows& place, Ops& ops, Device& device, Queue& queue) {
  CKPT_ASSIGN_OR_RETURN(const Buffer block_memory, AllocateBlock(array, device));
  for (const ParamPiece& piece : pieces) {
    const MutableByteSpan host = place(piece);
    if (host.empty()) continue;
    const Tensor elements = ElementsOf(piece, array);
    const std::int64_t num_elems = elements.num_elems();
    CKPT_CHECK(host.size() == static_cast<std::size_t>(num_elems) * sizeof(float));
    if (array.dtype == DType::kFloat32) {
      device.CopyToHost(queue, elements, host.data());
      continue;
    }
    for (std::int64_t first = 0; first < num_elems; first += kBlockElems) {
      const std::int64_t elems = std::min(kBlockElems, num_elems - first);
      const Tensor block(block_memory.data(), DType::kFloat32, {elems});
      ops.Cast(queue, elements.Rows(first, elems), block);
      device.CopyToHost(queue, block, &host[static_cast<std::size_t>(first) * sizeof(float)]);
    }
  }
  return queue.Synchronize();
}

}  // namespace ckpt::trainer
