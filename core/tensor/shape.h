// Shapes: element counts per dim, checked before use.
#ifndef CKPT_CORE_TENSOR_SHAPE_H_
#define CKPT_CORE_TENSOR_SHAPE_H_

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "core/base/result.h"
#include "core/tensor/dtype.h"

namespace ckpt {

// One number per dim: a shape, an offset, strides in elements, an index.
using Dims = std::vector<std::int64_t>;
using DimsView = std::span<const std::int64_t>;

// The most dims of a tensor in a file. It is torch's limit, whose operations keep dims in a set of
// 64 bits (ATen/WrapDimUtilsMulti.h).
inline constexpr std::size_t kMaxDims = 64;

// Product of a shape. Errors: kResource if it overflows 63 bits, kBadMetadata if a dim is negative.
Result<std::int64_t> CountElements(DimsView shape);
// Bytes of a dense tensor. Errors: those of CountElements.
Result<std::uint64_t> CountBytes(DimsView shape, DType dtype);

// The same for shapes that were checked when they were read. CHECK-fails otherwise.
[[nodiscard]] std::int64_t NumElements(DimsView shape);
[[nodiscard]] std::uint64_t NumBytes(DimsView shape, DType dtype);

// C order: the last dim has stride 1. REQUIRES: the shape was checked.
[[nodiscard]] Dims ContiguousStrides(DimsView shape);

// "[3, 4]"
[[nodiscard]] std::string FormatDims(DimsView dims);

[[nodiscard]] bool SameDims(DimsView a, DimsView b);

}  // namespace ckpt

#endif  // CKPT_CORE_TENSOR_SHAPE_H_
