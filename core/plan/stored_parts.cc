#include "core/plan/stored_parts.h"

#include <cstdint>
#include <set>
#include <utility>
#include <vector>

#include "core/checkpoint/chunk_copies.h"

namespace ckpt {

Status ForEachStoredPart(const CheckpointIndex& index, const GlobalTensor& tensor,
                         std::span<const Chunk> chunks, const layout::Nest& nest, std::size_t copy,
                         const std::function<Status(const Chunk& chunk, const Box& stored,
                                                    std::span<const layout::Nest> parts)>& visit) {
  std::int64_t missing = layout::Volume(nest);
  std::set<BoxId> read;  // boxes read: a replica must not count twice
  const ChunkCopies copies(chunks, copy);
  for (const Chunk& chunk : chunks) {
    if (missing <= 0) break;
    if (read.contains(BoxIdOf(chunk))) continue;
    const Box stored = index.box(chunk);
    const std::vector<layout::Nest> parts = layout::ClipToSource(nest, stored);
    if (parts.empty()) continue;
    read.insert(BoxIdOf(chunk));
    CKPT_RETURN_IF_ERROR(visit(copies.Of(chunk), stored, parts));
    for (const layout::Nest& part : parts) missing -= layout::Volume(part);
  }
  if (missing == 0) return OkStatus();
  return Error(ErrorKind::kCoverage, "no chunk holds part of the tensor").Tensor(tensor.key);
}

StridedCopy CopyOfPart(const layout::Nest& part, const Box& stored, DimsView strides, DType dtype,
                       const Box& box) {
  const auto element = static_cast<std::int64_t>(ElementBytes(dtype));
  const Dims out_strides = ContiguousStrides(box.sizes);
  StridedCopy copy;
  copy.run_bytes = static_cast<std::uint64_t>(element);
  std::int64_t src = 0;
  for (std::size_t d = 0; d < stored.offsets.size(); ++d) {
    src += (part.source_origin[d] - stored.offsets[d]) * strides[d];
  }
  std::int64_t dst = 0;
  for (std::size_t d = 0; d < box.offsets.size(); ++d) {
    dst += (part.target_origin[d] - box.offsets[d]) * out_strides[d];
  }
  copy.src_offset = static_cast<std::uint64_t>(src * element);
  copy.dst_offset = static_cast<std::uint64_t>(dst * element);
  for (const layout::Loop& loop : part.loops) {
    const auto source_dim = static_cast<std::size_t>(loop.source_dim);
    const auto target_dim = static_cast<std::size_t>(loop.target_dim);
    copy.loops.push_back({.extent = loop.extent,
                          .src_step = loop.source_step * strides[source_dim] * element,
                          .dst_step = loop.target_step * out_strides[target_dim] * element});
  }
  return Normalize(std::move(copy));
}

}  // namespace ckpt
