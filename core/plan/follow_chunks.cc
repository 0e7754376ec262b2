#include "core/plan/follow_chunks.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <utility>

#include "core/layout/affine.h"
#include "core/tensor/box.h"

namespace ckpt {
namespace {

// Rows at depth k are the subarrays at the places of the first k + 1 dims, in C order. A half-open
// range of them, and the file that holds their elements.
struct Part {
  std::int64_t begin = 0;
  std::int64_t end = 0;
  FileId file = 0;
};

// The ranges of rows that `bounds` has: one for each place in its first `depth` dims.
void AddParts(const Box& bounds, FileId file, DimsView shape, std::size_t depth,
              std::vector<Part>& parts) {
  if (shape.empty()) {
    parts.push_back({.begin = 0, .end = 1, .file = file});
    return;
  }
  Dims place(bounds.offsets.begin(), bounds.offsets.begin() + static_cast<std::ptrdiff_t>(depth));
  while (true) {
    std::int64_t row = 0;
    for (std::size_t d = 0; d < depth; ++d) row = (row + place[d]) * shape[d + 1];
    row += bounds.offsets[depth];
    parts.push_back({.begin = row, .end = row + bounds.sizes[depth], .file = file});
    std::size_t d = depth;
    for (; d > 0; --d) {
      if (++place[d - 1] < bounds.offsets[d - 1] + bounds.sizes[d - 1]) break;
      place[d - 1] = bounds.offsets[d - 1];
    }
    if (d == 0) return;
  }
}

std::vector<Part> PartsOf(const TargetTensor& target, const TensorRecipe& recipe,
                          const CheckpointIndex& source, std::size_t depth) {
  std::vector<Part> parts;
  for (const layout::Nest& nest : recipe.nests) {
    if (nest.is_zero_fill()) {
      AddParts(layout::TargetBounds(nest), 0, target.shape, depth, parts);
      continue;
    }
    for (const Chunk& chunk : source.chunks(source.tensors()[nest.source])) {
      for (const layout::Nest& clipped : layout::ClipToSource(nest, source.box(chunk))) {
        AddParts(layout::TargetBounds(clipped), chunk.file, target.shape, depth, parts);
      }
    }
  }
  std::ranges::sort(parts, {}, [](const Part& part) { return std::pair(part.begin, part.end); });
  return parts;
}

// Neighbours from one file are joined. Nothing if a row comes from several files.
std::optional<std::vector<Part>> Join(const std::vector<Part>& parts) {
  std::vector<Part> blocks;
  for (const Part& part : parts) {
    const bool starts_block = blocks.empty() || part.begin >= blocks.back().end;
    if (!starts_block && part.file != blocks.back().file) return std::nullopt;
    if (!starts_block || (!blocks.empty() && part.file == blocks.back().file)) {
      blocks.back().end = std::max(blocks.back().end, part.end);
    } else {
      blocks.push_back(part);
    }
  }
  return blocks;
}

// Adds the boxes of rows [begin, end) at `depth` that lie in `box` below dim `dim`; rows count from
// the box's first one.
void AddBoxes(std::int64_t begin, std::int64_t end, std::size_t dim, std::size_t depth, Box box,
              FileId file, std::vector<RowsFromFile>& rows) {
  std::int64_t inner = 1;
  for (std::size_t d = dim + 1; d <= depth; ++d) inner *= box.sizes[d];
  const auto add_whole = [&](std::int64_t from, std::int64_t to) {
    Box whole = box;
    whole.offsets[dim] = from;
    whole.sizes[dim] = to - from;
    rows.push_back({.box = std::move(whole), .file = file});
  };
  const auto add_cut = [&](std::int64_t from, std::int64_t to) {
    Box one = box;
    one.offsets[dim] = from / inner;
    one.sizes[dim] = 1;
    const std::int64_t start = from / inner * inner;
    AddBoxes(from - start, to - start, dim + 1, depth, std::move(one), file, rows);
  };
  const std::int64_t first_whole = (begin + inner - 1) / inner;
  const std::int64_t last_whole = end / inner;
  if (first_whole > last_whole) {
    add_cut(begin, end);
    return;
  }
  if (begin < first_whole * inner) add_cut(begin, first_whole * inner);
  if (first_whole < last_whole) add_whole(first_whole, last_whole);
  if (last_whole * inner < end) add_cut(last_whole * inner, end);
}

}  // namespace

Result<std::vector<RowsFromFile>> FollowChunks(const TargetTensor& target,
                                               const TensorRecipe& recipe,
                                               const CheckpointIndex& source) {
  const std::size_t depths = std::max<std::size_t>(target.shape.size(), 1);
  for (std::size_t depth = 0; depth < depths; ++depth) {
    const auto blocks = Join(PartsOf(target, recipe, source, depth));
    if (!blocks) continue;
    std::vector<RowsFromFile> rows;
    for (const Part& block : *blocks) {
      if (target.shape.empty()) {
        rows.push_back({.box = {}, .file = block.file});
      } else {
        AddBoxes(block.begin, block.end, 0, depth, WholeBox(target.shape), block.file, rows);
      }
    }
    return rows;
  }
  return Error(ErrorKind::kUnsupported, "one row comes from several files").Tensor(target.key);
}

}  // namespace ckpt
