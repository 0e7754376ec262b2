// A loop nest with two stride vectors. Every change of a tensor's layout consists of such copies.
#ifndef CKPT_CORE_TENSOR_STRIDED_COPY_H_
#define CKPT_CORE_TENSOR_STRIDED_COPY_H_

#include <cstddef>
#include <cstdint>
#include <vector>

#include "core/tensor/shape.h"

namespace ckpt {

// One loop; steps in bytes.
struct StrideLoop {
  std::int64_t extent = 1;
  std::int64_t src_step = 0;
  std::int64_t dst_step = 0;

  friend bool operator==(const StrideLoop&, const StrideLoop&) = default;
};

// For every index of `loops`, outermost first, copies `run_bytes` bytes from src_offset + Σ
// i·src_step to dst_offset + Σ i·dst_step. Steps are never negative.
struct StridedCopy {
  std::uint64_t src_offset = 0;
  std::uint64_t dst_offset = 0;
  std::vector<StrideLoop> loops;
  std::uint64_t run_bytes = 0;

  // Total bytes moved.
  [[nodiscard]] std::uint64_t SizeBytes() const;
  // Bytes from the first to the last one read on the source side.
  [[nodiscard]] std::uint64_t SourceSpan() const;
};

// The same copy with the fewest loops: drops extents of 1, orders loops by descending source step,
// merges adjacent loops, and turns a contiguous innermost loop into a longer run. With nothing to
// copy, run_bytes == 0.
[[nodiscard]] StridedCopy Normalize(StridedCopy copy);

// The copy from a box of one strided array to a box of another. Both boxes have size `sizes`.
// Strides count elements.
[[nodiscard]] StridedCopy MakeBoxCopy(DimsView sizes, std::uint64_t element_bytes,
                                      std::uint64_t src_offset, DimsView src_strides,
                                      std::uint64_t dst_offset, DimsView dst_strides);

// Copies in memory. REQUIRES: both sides in bounds, no overlap.
void CopyStrided(const StridedCopy& copy, const std::byte* src, std::byte* dst);

}  // namespace ckpt

#endif  // CKPT_CORE_TENSOR_STRIDED_COPY_H_
