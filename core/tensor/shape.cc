#include "core/tensor/shape.h"

#include <algorithm>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "core/base/check.h"
#include "core/base/checked_math.h"

namespace ckpt {

Result<std::int64_t> CountElements(DimsView shape) {
  std::int64_t count = 1;
  bool overflow = false;
  bool empty = false;
  for (const std::int64_t dim : shape) {
    if (dim < 0) return Error(ErrorKind::kBadMetadata, "negative size").Actual(FormatDims(shape));
    empty = empty || dim == 0;
    overflow = overflow || !CheckedMul(count, dim, &count);
  }
  if (empty) return std::int64_t{0};
  if (overflow) {
    return Error(ErrorKind::kResource, "the number of elements overflows 63 bits")
        .Actual(FormatDims(shape));
  }
  return count;
}

Result<std::uint64_t> CountBytes(DimsView shape, DType dtype) {
  CKPT_ASSIGN_OR_RETURN(const std::int64_t count, CountElements(shape));
  std::uint64_t bytes = 0;
  if (!CheckedMul(static_cast<std::uint64_t>(count), ElementBytes(dtype), &bytes) ||
      bytes > static_cast<std::uint64_t>(INT64_MAX)) {
    return Error(ErrorKind::kResource, "the byte size overflows 63 bits").Actual(FormatDims(shape));
  }
  return bytes;
}

std::int64_t NumElements(DimsView shape) {
  const Result<std::int64_t> count = CountElements(shape);
  CKPT_CHECK(count.ok());
  return *count;
}

std::uint64_t NumBytes(DimsView shape, DType dtype) {
  Result<std::uint64_t> bytes = CountBytes(shape, dtype);
  CKPT_CHECK(bytes.ok());
  return *bytes;
}

Dims ContiguousStrides(DimsView shape) {
  Dims strides(shape.size(), 1);
  for (std::size_t d = shape.size(); d-- > 1;) {
    // May wrap for an empty shape: its other sizes have no limit, and its strides are never used.
    strides[d - 1] =
        static_cast<std::int64_t>(static_cast<std::uint64_t>(strides[d]) *
                                  static_cast<std::uint64_t>(std::max<std::int64_t>(shape[d], 1)));
  }
  return strides;
}

std::string FormatDims(DimsView dims) { return fmt::format("[{}]", fmt::join(dims, ", ")); }

bool SameDims(DimsView a, DimsView b) { return std::equal(a.begin(), a.end(), b.begin(), b.end()); }

}  // namespace ckpt
