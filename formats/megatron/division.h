// How Megatron's tensor-parallel ranks divide the tensors of a model.
#ifndef CKPT_FORMATS_MEGATRON_DIVISION_H_
#define CKPT_FORMATS_MEGATRON_DIVISION_H_

#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

#include "core/base/result.h"
#include "core/tensor/box.h"
#include "core/tensor/shape.h"

namespace ckpt::megatron {

enum class Division : std::uint8_t {
  kWhole,    // every rank has all of it
  kRows,     // column-parallel: each rank has a range of the rows
  kColumns,  // row-parallel: a range of the columns
  kHalves,   // of gate and up, one above the other: a range of the rows of each
};

// By the tensor's name in the live module ("decoder.layers.0.mlp.linear_fc1.weight"). `is_gated`:
// the model's MLPs have a gate. Nothing: the name is not known.
[[nodiscard]] std::optional<Division> DivisionOf(std::string_view name, bool is_gated);

// Rows of a rank's part, and where they lie in the tensor.
struct PlacedRows {
  std::int64_t first_row = 0;  // of the part; 0 of a tensor without dims
  Box box;
};

struct PlacedPiece {
  Dims shape;                    // of the whole tensor
  std::vector<PlacedRows> rows;  // together the whole part
};

// Where the part of tensor rank `rank` of `ranks` lies, which has this shape. Errors:
// kShapeMismatch (it cannot be such a part), kResource (the whole tensor's size overflows).
Result<PlacedPiece> PlacePart(Division division, DimsView part, std::int64_t rank,
                              std::int64_t ranks);

}  // namespace ckpt::megatron

#endif  // CKPT_FORMATS_MEGATRON_DIVISION_H_
