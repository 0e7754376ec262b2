// A box: a half-open range of indices in every dim of a tensor.
#ifndef CKPT_CORE_TENSOR_BOX_H_
#define CKPT_CORE_TENSOR_BOX_H_

#include <optional>
#include <string>
#include <vector>

#include "core/tensor/shape.h"

namespace ckpt {

struct Box {
  Dims offsets;
  Dims sizes;

  friend bool operator==(const Box&, const Box&) = default;
};

// The whole of a tensor.
[[nodiscard]] Box WholeBox(DimsView shape);
// "[0:2, 3:5]"
[[nodiscard]] std::string FormatBox(const Box& box);
// Whether the box has an index, in every dim.
[[nodiscard]] bool IsEmpty(const Box& box);
// The common part, or nothing. REQUIRES: same ndim.
[[nodiscard]] std::optional<Box> Intersect(const Box& a, const Box& b);
// Errors: kBadMetadata (ndim differs, negative size), kOutOfRange (reaches outside `shape`).
Status CheckInside(const Box& box, DimsView shape);

// A proof that boxes cover a tensor exactly once, or why they do not.
//
// Boxes equal to an earlier one are counted in `duplicates` and otherwise ignored: replicas are no
// overlap. `missing` and `overlap` give one witness each. Cost: O(n log n) for grids and row blocks
// of any nesting, O(n²) at worst for arrangements that no cut separates.
struct CoverProof {
  std::optional<Box> missing;                  // a box that nothing covers
  std::optional<std::pair<Box, Box>> overlap;  // two different boxes that share elements
  std::size_t duplicates = 0;

  [[nodiscard]] bool exact() const { return !missing && !overlap; }
};
// REQUIRES: every box passed CheckInside(box, shape).
[[nodiscard]] CoverProof ProveCover(DimsView shape, std::vector<Box> boxes);

}  // namespace ckpt

#endif  // CKPT_CORE_TENSOR_BOX_H_
