#include "core/plan/follow_chunks.h"

#include <algorithm>
#include <cstdint>
#include <utility>

#include "core/layout/affine.h"
#include "core/tensor/box.h"

namespace ckpt {
namespace {

// A half-open range of target rows, and the file that holds their elements.
struct Part {
  std::int64_t begin = 0;
  std::int64_t end = 0;
  FileId file = 0;
};

Part PartOf(const layout::Nest& nest, FileId file) {
  const Box bounds = layout::TargetBounds(nest);
  if (bounds.sizes.empty()) return {.begin = 0, .end = 1, .file = file};
  return {.begin = bounds.offsets.front(),
          .end = bounds.offsets.front() + bounds.sizes.front(),
          .file = file};
}

std::vector<Part> PartsOf(const TensorRecipe& recipe, const CheckpointIndex& source) {
  std::vector<Part> parts;
  for (const layout::Nest& nest : recipe.nests) {
    if (nest.is_zero_fill()) {
      parts.push_back(PartOf(nest, 0));
      continue;
    }
    for (const Chunk& chunk : source.chunks(source.tensors()[nest.source])) {
      for (const layout::Nest& clipped : layout::ClipToSource(nest, source.box(chunk))) {
        parts.push_back(PartOf(clipped, chunk.file));
      }
    }
  }
  std::ranges::sort(parts, {}, [](const Part& part) { return std::pair(part.begin, part.end); });
  return parts;
}

}  // namespace

Result<std::vector<RowsFromFile>> FollowChunks(const TargetTensor& target,
                                               const TensorRecipe& recipe,
                                               const CheckpointIndex& source) {
  std::vector<Part> blocks;
  for (const Part& part : PartsOf(recipe, source)) {
    const bool starts_block = blocks.empty() || part.begin >= blocks.back().end;
    if (!starts_block && part.file != blocks.back().file) {
      return Error(ErrorKind::kUnsupported, "one row comes from several files").Tensor(target.key);
    }
    if (!starts_block || (!blocks.empty() && part.file == blocks.back().file)) {
      blocks.back().end = std::max(blocks.back().end, part.end);
    } else {
      blocks.push_back(part);
    }
  }
  std::vector<RowsFromFile> rows;
  for (const Part& block : blocks) {
    Box box = WholeBox(target.shape);
    if (!box.sizes.empty()) {
      box.offsets.front() = block.begin;
      box.sizes.front() = block.end - block.begin;
    }
    rows.push_back({.box = std::move(box), .file = block.file});
  }
  return rows;
}

}  // namespace ckpt
