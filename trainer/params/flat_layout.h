// FlatLayout: tensors one after another in a flat array, such that equal shards cut them only
// between rows.
//
// A row is what one index of a tensor's first dim selects. Every tensor starts at a multiple of its
// row, and the shard size is a multiple of all rows. So a shard boundary never cuts a row, and a
// shard's part of a tensor is a range of rows: a chunk that a checkpoint can describe. Checkpoints
// do not contain the tensors' positions in the array, so no format depends on them.
//
// Tensors and shards also start at multiples of the alignment, which tensor cores, wide loads and
// collectives need: 64 elements are 128 bytes of bfloat16.
#ifndef CKPT_TRAINER_PARAMS_FLAT_LAYOUT_H_
#define CKPT_TRAINER_PARAMS_FLAT_LAYOUT_H_

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "core/tensor/shape.h"

namespace ckpt::trainer {

struct FlatLayoutOptions {
  int num_shards = 1;  // the finest division of any buffer of the array
  // Tensors start at multiples of this many elements, and shard sizes are multiples of it.
  std::int64_t alignment_elems = 64;
};

// Positions count elements, so arrays of several dtypes share one layout.
struct FlatLayout {
  std::int64_t total_elems = 0;  // a multiple of num_shards
  int num_shards = 1;
  std::vector<std::int64_t> offsets;  // where each tensor starts, in the order given
  std::vector<std::int64_t> row_elems;
  std::vector<std::int64_t> num_elems;
};

// The part of a tensor within a range of the flat array.
struct RowRange {
  std::int64_t tensor = 0;  // index among the layout's tensors
  std::int64_t row_begin = 0;
  std::int64_t rows = 0;
  std::int64_t flat_begin = 0;  // where those rows start in the array
  std::int64_t elems = 0;

  friend bool operator==(const RowRange&, const RowRange&) = default;
};

// Which tensors may share a flat array: each group lists tensors by index, in ascending order. A
// tensor goes to the first group that stays within two limits. The common multiple of rows must be
// at most 64 Ki elements or the longest row. The padding must be at most 3 %, or at most that of
// separate arrays plus one alignment per shard: short tensors cannot stay within 3 % (40 elements
// alone, over 8 shards aligned to 64, become 512).
//
// REQUIRES: those of LayOut, for each tensor by itself.
std::vector<std::vector<std::size_t>> GroupTensors(std::span<const Dims> shapes,
                                                   const FlatLayoutOptions& options);

// Places tensors in order of falling row size; shorter ones fill the gaps that alignment leaves.
// Let L be the least common multiple of all rows and the alignment. The padding is less than
// num_shards · L, plus for every tensor the least common multiple of its row and the alignment. The
// latter part is 0 for a tensor whose predecessor ends where it may start, as large matrices do.
//
// REQUIRES: no tensor is empty (a scalar is one row of one element), num_shards and alignment_elems
// are positive, num_shards · L and the number of elements fit into 63 bits.
FlatLayout LayOut(std::span<const Dims> shapes, const FlatLayoutOptions& options);

// Elements that no tensor covers: the gaps of alignment and the padding at the end.
struct FlatGap {
  std::int64_t begin = 0;
  std::int64_t elems = 0;

  friend bool operator==(const FlatGap&, const FlatGap&) = default;
};

// In order of position; none is empty.
std::vector<FlatGap> ListGaps(const FlatLayout& layout);

// The non-empty pieces of all tensors within [begin, end), in order of position.
//
// REQUIRES: 0 <= begin <= end <= total_elems, both multiples of total_elems / num_shards: the
// bounds of a shard in this division or in a coarser one.
std::vector<RowRange> RowsWithin(const FlatLayout& layout, std::int64_t begin, std::int64_t end);

}  // namespace ckpt::trainer

#endif  // CKPT_TRAINER_PARAMS_FLAT_LAYOUT_H_
