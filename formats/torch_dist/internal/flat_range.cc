#include "formats/torch_dist/internal/flat_range.h"

#include <algorithm>
#include <cstddef>
#include <utility>

namespace ckpt::torch_dist {

std::vector<FlatBox> CutFlatRange(DimsView shape, std::int64_t begin, std::int64_t end) {
  const Dims strides = ContiguousStrides(shape);
  std::vector<FlatBox> boxes;
  for (std::int64_t at = begin; at < end;) {
    // The outermost dim of which whole steps fit, from this position.
    std::size_t dim = 0;
    while (dim + 1 < shape.size() && (at % strides[dim] != 0 || strides[dim] > end - at)) ++dim;
    FlatBox cut = {.box = WholeBox(shape), .first_elem = at};
    std::int64_t rest = at;
    for (std::size_t d = 0; d <= dim && d < shape.size(); ++d) {
      cut.box.offsets[d] = rest / strides[d];
      cut.box.sizes[d] = 1;
      rest %= strides[d];
    }
    std::int64_t count = 1;
    if (!shape.empty()) {
      count = std::min((end - at) / strides[dim], shape[dim] - cut.box.offsets[dim]);
      cut.box.sizes[dim] = count;
      count *= strides[dim];
    }
    boxes.push_back(std::move(cut));
    at += count;
  }
  return boxes;
}

std::vector<FlatBox> CutFlatRange(const Box& block, std::int64_t begin, std::int64_t end) {
  std::vector<FlatBox> boxes = CutFlatRange(block.sizes, begin, end);
  for (FlatBox& cut : boxes) {
    for (std::size_t d = 0; d < block.offsets.size(); ++d) {
      cut.box.offsets[d] += block.offsets[d];
    }
  }
  return boxes;
}

StoredArray InRow(StoredArray row, std::int64_t first_elem, DimsView strides, DimsView sizes) {
  // A step in the C order of the block becomes a step along the row.
  const std::int64_t step = row.strides.back();
  row.offset_bytes += static_cast<std::uint64_t>(first_elem * step) * ElementBytes(row.dtype);
  // The stride of a dim with one element has no effect, so an item of one element may have any
  // stride.
  row.strides.assign(sizes.size(), 0);
  for (std::size_t d = 0; d < sizes.size(); ++d) {
    if (sizes[d] > 1) row.strides[d] = strides[d] * step;
  }
  return row;
}

Result<Dims> BlockShape(DimsView original, DimsView stored) {
  const auto mismatch = [&] {
    return Error(ErrorKind::kBadMetadata, "a flattened tensor's stored shape does not fit its own")
        .Expected("blocks of " + FormatDims(original))
        .Actual(FormatDims(stored));
  };
  if (stored.size() != original.size() + 1) return mismatch();
  Dims block;
  for (std::size_t d = 0; d < original.size(); ++d) {
    if (stored[d] <= 0 || original[d] % stored[d] != 0) return mismatch();
    block.push_back(original[d] / stored[d]);
  }
  CKPT_ASSIGN_OR_RETURN(const std::int64_t num_elems, CountElements(block));
  if (num_elems != stored.back()) return mismatch();
  return block;
}

}  // namespace ckpt::torch_dist
