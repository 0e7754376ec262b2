// Tensors that are stored in flattened blocks: where a box of one is in what is stored.
#ifndef CKPT_FORMATS_DCP_INTERNAL_FLAT_BLOCKS_H_
#define CKPT_FORMATS_DCP_INTERNAL_FLAT_BLOCKS_H_

#include <cstdint>
#include <vector>

#include "core/tensor/box.h"
#include "core/tensor/shape.h"

namespace ckpt::dcp {

// The shape [X, Y] in a grid of [x, y] blocks is stored as [x, y, X/x * Y/y].
[[nodiscard]] Dims StoredShape(DimsView shape, DimsView grid);

// REQUIRES: `box` is one of those that CutIntoFlat makes.
[[nodiscard]] Box StoredBox(DimsView shape, DimsView grid, const Box& box);

// The parts of a box of which each is a range of one block's elements in C order, of at most
// `max_elements`, but at least one. In C order of their first elements.
[[nodiscard]] std::vector<Box> CutIntoFlat(DimsView shape, DimsView grid, const Box& box,
                                           std::int64_t max_elements);

}  // namespace ckpt::dcp

#endif  // CKPT_FORMATS_DCP_INTERNAL_FLAT_BLOCKS_H_
