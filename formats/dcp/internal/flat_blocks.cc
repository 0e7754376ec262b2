#include "formats/dcp/internal/flat_blocks.h"

#include <algorithm>
#include <cstddef>

namespace ckpt::dcp {
namespace {

Dims BlockOf(DimsView shape, DimsView grid) {
  Dims block(shape.size());
  for (std::size_t d = 0; d < shape.size(); ++d) block[d] = shape[d] / grid[d];
  return block;
}

// Cuts along the dims from `dim` on.
void Cut(DimsView block, std::int64_t max_elements, const Box& box, std::size_t dim,
         std::vector<Box>& parts) {
  if (dim == block.size()) {
    parts.push_back(box);
    return;
  }
  // Whole steps along this dim are one range if they are in one block and whole further in.
  bool is_range = true;
  std::int64_t step_elements = 1;
  for (std::size_t d = dim + 1; d < block.size(); ++d) {
    is_range = is_range && box.sizes[d] == block[d] && box.offsets[d] % block[d] == 0;
    step_elements *= box.sizes[d];
  }
  const bool is_last = dim + 1 == block.size();
  is_range = is_range && (is_last || step_elements <= max_elements);
  const std::int64_t most = is_range ? std::max<std::int64_t>(max_elements / step_elements, 1) : 1;
  const std::int64_t end = box.offsets[dim] + box.sizes[dim];
  for (std::int64_t at = box.offsets[dim]; at < end;) {
    const std::int64_t block_end = (at / block[dim] + 1) * block[dim];
    Box part = box;
    part.offsets[dim] = at;
    part.sizes[dim] = std::min({most, end - at, block_end - at});
    at += part.sizes[dim];
    if (is_range) {
      parts.push_back(std::move(part));
    } else {
      Cut(block, max_elements, part, dim + 1, parts);
    }
  }
}

}  // namespace

Dims StoredShape(DimsView shape, DimsView grid) {
  Dims stored(grid.begin(), grid.end());
  stored.push_back(NumElements(BlockOf(shape, grid)));
  return stored;
}

Box StoredBox(DimsView shape, DimsView grid, const Box& box) {
  const Dims block = BlockOf(shape, grid);
  Box stored{.offsets = Dims(shape.size()), .sizes = Dims(shape.size(), 1)};
  std::int64_t first = 0;
  for (std::size_t d = 0; d < shape.size(); ++d) {
    stored.offsets[d] = box.offsets[d] / block[d];
    first = first * block[d] + box.offsets[d] % block[d];
  }
  stored.offsets.push_back(first);
  stored.sizes.push_back(NumElements(box.sizes));
  return stored;
}

std::vector<Box> CutIntoFlat(DimsView shape, DimsView grid, const Box& box,
                             std::int64_t max_elements) {
  std::vector<Box> parts;
  Cut(BlockOf(shape, grid), max_elements, box, 0, parts);
  return parts;
}

}  // namespace ckpt::dcp
