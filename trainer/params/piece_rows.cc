#include "trainer/params/piece_rows.h"

#include <algorithm>
#include <cstdint>
#include <vector>

#include "core/base/check.h"
#include "core/base/result.h"

namespace ckpt::trainer {
namespace {

constexpr std::int64_t kBlockElems = 64 << 10;  // that are cast at a time

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

Status ReadPieces(std::span<const ParamPiece> pieces, const Tensor& array,
                  const ParamStore::PlaceRows& place, Ops& ops, Device& device, Queue& queue) {
  const bool casts = array.dtype != DType::kFloat32;
  Buffer cast_memory;
  if (casts) {
    CKPT_ASSIGN_OR_RETURN(cast_memory,
                          device.Allocate(kBlockElems * sizeof(float), MemoryUse::kOther));
  }
  for (const ParamPiece& piece : pieces) {
    const MutableByteSpan host = place(piece);
    if (host.empty()) continue;
    const Tensor elements = ElementsOf(piece, array);
    const std::int64_t num_elems = elements.num_elems();
    CKPT_CHECK(host.size() == static_cast<std::size_t>(num_elems) * sizeof(float));
    if (!casts) {
      device.CopyToHost(queue, elements, host.data());
      continue;
    }
    for (std::int64_t first = 0; first < num_elems; first += kBlockElems) {
      const std::int64_t elems = std::min(kBlockElems, num_elems - first);
      const Tensor block(cast_memory.data(), DType::kFloat32, {elems});
      ops.Cast(queue, elements.Rows(first, elems), block);
      device.CopyToHost(queue, block, &host[static_cast<std::size_t>(first) * sizeof(float)]);
    }
  }
  return queue.Synchronize();
}

}  // namespace ckpt::trainer
