#include "core/tensor/blocks.h"

#include <algorithm>

#include "core/base/result.h"

namespace ckpt {

Status ForEachBlock(const Box& box, std::int64_t max_elements,
                    const std::function<Status(const Box& block)>& visit) {
  if (IsEmpty(box)) return OkStatus();
  const std::size_t ndim = box.sizes.size();
  if (ndim == 0) return visit(box);
  // Dims after `cut` are whole in every block. Dim `cut` is taken `step` indices at a time, dims
  // before it one index at a time.
  std::size_t cut = ndim - 1;
  std::int64_t inner = 1;
  while (cut > 0 && inner <= max_elements / box.sizes[cut]) inner *= box.sizes[cut--];
  const std::int64_t step = std::clamp<std::int64_t>(max_elements / inner, 1, box.sizes[cut]);

  Box block = box;
  for (std::size_t d = 0; d < cut; ++d) block.sizes[d] = 1;
  while (true) {
    for (std::int64_t at = 0; at < box.sizes[cut]; at += step) {
      block.offsets[cut] = box.offsets[cut] + at;
      block.sizes[cut] = std::min(step, box.sizes[cut] - at);
      CKPT_RETURN_IF_ERROR(visit(block));
    }
    // Advance the dims before the cut, the last one fastest.
    std::size_t d = cut;
    while (d-- > 0) {
      if (++block.offsets[d] < box.offsets[d] + box.sizes[d]) break;
      block.offsets[d] = box.offsets[d];
    }
    if (d == static_cast<std::size_t>(-1)) return OkStatus();
  }
}

Box FirstBlock(Box box, std::int64_t max_elements) {
  for (std::int64_t& size : box.sizes) {
    const std::int64_t inner = NumElements(box.sizes) / size;
    size = std::clamp<std::int64_t>(max_elements / inner, 1, size);
    if (size > 1) break;
  }
  return box;
}

}  // namespace ckpt
