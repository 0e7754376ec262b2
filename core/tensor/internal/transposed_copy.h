// Copies whose two sides run along different loops, as a transpose does.
#ifndef CKPT_CORE_TENSOR_INTERNAL_TRANSPOSED_COPY_H_
#define CKPT_CORE_TENSOR_INTERNAL_TRANSPOSED_COPY_H_

#include <cstddef>

#include "core/tensor/strided_copy.h"

namespace ckpt::internal {

// Whether another loop has the smallest step in the target than in the source, and runs are single
// elements of 1, 2, 4 or 8 bytes.
[[nodiscard]] bool IsTransposed(const StridedCopy& copy);

// CopyStrided, tile by tile: a cache holds the lines of a tile on both sides, so that each is
// fetched about once. REQUIRES: IsTransposed(copy).
void CopyTransposed(const StridedCopy& copy, const std::byte* src, std::byte* dst);

}  // namespace ckpt::internal

#endif  // CKPT_CORE_TENSOR_INTERNAL_TRANSPOSED_COPY_H_
