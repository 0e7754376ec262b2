// FlatLayout: tensors laid out one behind another so that equal shards cut them only between rows.
//
// A row is what one index of a tensor's first dim selects. Every tensor starts at a multiple of its
// row and every shard is a multiple of all rows, so a boundary is a whole number of rows into the
// tensor it cuts, and what a shard holds of a tensor is a range of rows: a chunk that a checkpoint
// can name. Checkpoints name nothing else, so where tensors start is no part of any format.
//
// Tensors and shards start at multiples of the alignment, too, as tensor cores, wide loads and
// collectives want it: 64 elements are 128 bytes of bfloat16.
#ifndef CKPT_TRAINER_PARAMS_FLAT_LAYOUT_H_
#define CKPT_TRAINER_PARAMS_FLAT_LAYOUT_H_

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "core/tensor/shape.h"

namespace ckpt::trainer {

struct FlatLayoutOptions {
  int num_shards = 1;  // the finest division any buffer of the array has
  // Tensors start at multiples of this many elements, and shard sizes are multiples of it.
  std::int64_t alignment_elems = 64;
};

// Positions are in elements, so arrays of several dtypes share one layout.
struct FlatLayout {
  std::int64_t total_elems = 0;  // a multiple of num_shards
  int num_shards = 1;
  std::vector<std::int64_t> offsets;  // of each tensor, in the order given
  std::vector<std::int64_t> row_elems;
  std::vector<std::int64_t> num_elems;

  [[nodiscard]] std::int64_t shard_elems() const { return total_elems / num_shards; }
};

// The part of a tensor within a range of the flat array.
struct RowRange {
  std::int64_t tensor = 0;  // index among the layout's tensors
  std::int64_t row_begin = 0;
  std::int64_t rows = 0;
  std::int64_t flat_begin = 0;  // where those rows start
  std::int64_t elems = 0;

  friend bool operator==(const RowRange&, const RowRange&) = default;
};

// Which tensors may share a flat array: each group lists tensors by index, in ascending order. A
// tensor goes to the first group whose common multiple of rows stays sensible (64 Ki elements, or
// the longest row) and whose padding stays within 3 %, or within what arrays of their own would
// need plus one alignment per shard. Short tensors cannot keep to 3 %: 40 elements alone over 8
// shards, aligned to 64, become 512.
//
// REQUIRES: as LayOut, for each tensor by itself.
std::vector<std::vector<std::size_t>> GroupTensors(std::span<const Dims> shapes,
                                                   const FlatLayoutOptions& options);

// Places tensors by falling row size, shorter ones in the gaps that alignment leaves. The padding is
// less than num_shards · L, with L the least common multiple of all rows and the alignment, plus for
// every tensor that of its row and the alignment: 0 for each whose predecessor ends where it may
// start, as large matrices do.
//
// REQUIRES: shapes are of non-empty tensors (a scalar is one row of one element), num_shards and
// alignment_elems are positive, num_shards · L and all elements fit 63 bits.
FlatLayout LayOut(std::span<const Dims> shapes, const FlatLayoutOptions& options);

// What no tensor covers: the gaps that alignment left and the padding at the end.
struct FlatGap {
  std::int64_t begin = 0;
  std::int64_t elems = 0;

  friend bool operator==(const FlatGap&, const FlatGap&) = default;
};

// By position, none empty.
std::vector<FlatGap> ListGaps(const FlatLayout& layout);

// The non-empty pieces of all tensors within [begin, end), by position.
//
// REQUIRES: 0 <= begin <= end <= total_elems, both multiples of shard_elems(): the bounds of a
// shard of
// this division, or of a coarser one.
std::vector<RowRange> RowsWithin(const FlatLayout& layout, std::int64_t begin, std::int64_t end);

}  // namespace ckpt::trainer

#endif  // CKPT_TRAINER_PARAMS_FLAT_LAYOUT_H_
