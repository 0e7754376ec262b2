#include "core/tensor/strided_copy.h"

#include <algorithm>
#include <cstring>
#include <span>

#include "core/tensor/internal/transposed_copy.h"

namespace ckpt {
namespace {

// A constant size lets the compiler emit one load and one store instead of a call.
template <std::size_t kBytes>
void CopyElements(const StrideLoop& loop, const std::byte* src, std::byte* dst) {
  for (std::int64_t i = 0; i < loop.extent; ++i) {
    std::memcpy(dst + i * loop.dst_step, src + i * loop.src_step, kBytes);
  }
}

void CopyInnermost(const StrideLoop& loop, std::uint64_t run_bytes, const std::byte* src,
                   std::byte* dst) {
  switch (run_bytes) {
    case 1:
      return CopyElements<1>(loop, src, dst);
    case 2:
      return CopyElements<2>(loop, src, dst);
    case 4:
      return CopyElements<4>(loop, src, dst);
    case 8:
      return CopyElements<8>(loop, src, dst);
    default:
      for (std::int64_t i = 0; i < loop.extent; ++i) {
        std::memcpy(dst + i * loop.dst_step, src + i * loop.src_step, run_bytes);
      }
  }
}

void CopyLoops(std::span<const StrideLoop> loops, std::uint64_t run_bytes, const std::byte* src,
               std::byte* dst) {
  if (loops.empty()) {
    std::memcpy(dst, src, run_bytes);
    return;
  }
  if (loops.size() == 1) {
    CopyInnermost(loops[0], run_bytes, src, dst);
    return;
  }
  for (std::int64_t i = 0; i < loops[0].extent; ++i) {
    CopyLoops(loops.subspan(1), run_bytes, src + i * loops[0].src_step,
              dst + i * loops[0].dst_step);
  }
}

}  // namespace

std::uint64_t StridedCopy::SizeBytes() const {
  std::uint64_t size = run_bytes;
  for (const StrideLoop& loop : loops) size *= static_cast<std::uint64_t>(loop.extent);
  return size;
}

std::uint64_t StridedCopy::SourceSpan() const {
  if (SizeBytes() == 0) return 0;
  std::uint64_t span = run_bytes;
  for (const StrideLoop& loop : loops) {
    span += static_cast<std::uint64_t>(loop.extent - 1) * static_cast<std::uint64_t>(loop.src_step);
  }
  return span;
}

StridedCopy Normalize(StridedCopy copy) {
  if (copy.SizeBytes() == 0) {
    copy.loops.clear();
    copy.run_bytes = 0;
    return copy;
  }
  std::vector<StrideLoop>& loops = copy.loops;
  std::erase_if(loops, [](const StrideLoop& loop) { return loop.extent == 1; });
  std::stable_sort(loops.begin(), loops.end(), [](const StrideLoop& a, const StrideLoop& b) {
    return a.src_step > b.src_step;
  });
  std::vector<StrideLoop> merged;
  for (auto it = loops.rbegin(); it != loops.rend(); ++it) {
    const auto run = static_cast<std::int64_t>(copy.run_bytes);
    if (merged.empty() && it->src_step == run && it->dst_step == run) {
      copy.run_bytes *= static_cast<std::uint64_t>(it->extent);
    } else if (!merged.empty() && it->src_step == merged.back().src_step * merged.back().extent &&
               it->dst_step == merged.back().dst_step * merged.back().extent) {
      merged.back().extent *= it->extent;
    } else {
      merged.push_back(*it);
    }
  }
  std::reverse(merged.begin(), merged.end());
  loops = std::move(merged);
  return copy;
}

StridedCopy MakeBoxCopy(DimsView sizes, std::uint64_t element_bytes, std::uint64_t src_offset,
                        DimsView src_strides, std::uint64_t dst_offset, DimsView dst_strides) {
  StridedCopy copy{
      .src_offset = src_offset, .dst_offset = dst_offset, .loops = {}, .run_bytes = element_bytes};
  const auto bytes = static_cast<std::int64_t>(element_bytes);
  for (std::size_t d = 0; d < sizes.size(); ++d) {
    copy.loops.push_back({.extent = sizes[d],
                          .src_step = src_strides[d] * bytes,
                          .dst_step = dst_strides[d] * bytes});
  }
  return Normalize(std::move(copy));
}

void CopyStrided(const StridedCopy& copy, const std::byte* src, std::byte* dst) {
  if (copy.run_bytes == 0) return;
  if (internal::IsTransposed(copy)) return internal::CopyTransposed(copy, src, dst);
  CopyLoops(copy.loops, copy.run_bytes, src + copy.src_offset, dst + copy.dst_offset);
}

}  // namespace ckpt
