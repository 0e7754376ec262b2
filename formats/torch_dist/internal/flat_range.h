// Slices of flattened tensors, as old distributed optimizers of Megatron stored them, seen as boxes
// again.
#ifndef CKPT_FORMATS_TORCH_DIST_INTERNAL_FLAT_RANGE_H_
#define CKPT_FORMATS_TORCH_DIST_INTERNAL_FLAT_RANGE_H_

#include <cstdint>
#include <vector>

#include "core/base/result.h"
#include "core/checkpoint/source.h"
#include "core/tensor/box.h"
#include "core/tensor/shape.h"

namespace ckpt::torch_dist {

// A box of a flattened block and where its elements stand: at `first_elem` of the C order,
// contiguous.
struct FlatBox {
  Box box;
  std::int64_t first_elem = 0;
};

// Cuts the elements [begin, end) of the C order of `shape` into boxes, in order: at most 2·ndim - 1
// of them. REQUIRES: 0 <= begin <= end <= NumElements(shape).
[[nodiscard]] std::vector<FlatBox> CutFlatRange(DimsView shape, std::int64_t begin,
                                                std::int64_t end);
// The same of a box of a tensor: boxes of that tensor.
[[nodiscard]] std::vector<FlatBox> CutFlatRange(const Box& block, std::int64_t begin,
                                                std::int64_t end);

// Where a box of `sizes` lies that CutFlatRange cut from a block with `strides`, if the block's
// elements lie in `row` and the box's begin at `first_elem` of it.
[[nodiscard]] StoredArray InRow(StoredArray row, std::int64_t first_elem, DimsView strides,
                                DimsView sizes);

// The shape of one block of a tensor that was reformulated: `stored` is (blocks per dim …, elements
// per block). If there is one, `original` has as many elements as `stored`.
// Errors: kBadMetadata (the two shapes do not belong together), kResource (a block of too many
// elements).
Result<Dims> BlockShape(DimsView original, DimsView stored);

}  // namespace ckpt::torch_dist

#endif  // CKPT_FORMATS_TORCH_DIST_INTERNAL_FLAT_RANGE_H_
