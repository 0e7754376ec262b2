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

// A box whose numbers are stored elsewhere, such as in an index that holds millions of them.
struct BoxView {
  DimsView offsets;
  DimsView sizes;

  BoxView(DimsView o, DimsView s) : offsets(o), sizes(s) {}
  // NOLINTNEXTLINE(google-explicit-constructor)
  BoxView(const Box& box) : offsets(box.offsets), sizes(box.sizes) {}
};

// The box of a whole tensor.
[[nodiscard]] Box WholeBox(DimsView shape);
// "[0:2, 3:5]"
[[nodiscard]] std::string FormatBox(const BoxView& box);
// Whether the box has no elements: some size is 0.
[[nodiscard]] bool IsEmpty(const BoxView& box);
// The common part, or nothing, for which nothing is allocated. REQUIRES: same ndim.
[[nodiscard]] std::optional<Box> Intersect(const BoxView& a, const BoxView& b);
// Errors: kBadMetadata (ndim differs, negative size), kOutOfRange (not within `shape`).
Status CheckInside(const BoxView& box, DimsView shape);

// A proof that boxes cover a tensor exactly once, or why they do not.
//
// A box equal to an earlier one is counted in `duplicates` and otherwise ignored: replicas are not
// an overlap. `missing` and `overlap` each give one example.
struct CoverProof {
  std::optional<Box> missing;                  // a box that nothing covers
  std::optional<std::pair<Box, Box>> overlap;  // two different boxes that share elements
  std::size_t duplicates = 0;
  bool undecided = false;  // made to defeat the search; real checkpoints never are

  [[nodiscard]] bool exact() const { return !missing && !overlap && !undecided; }
};
// Cost: O(n log n) per dim for grids, row blocks and any arrangement that cuts across the whole
// tensor separate, at any nesting. Other arrangements are cut into cells, with a limit on the work.
//
// REQUIRES: every box passed CheckInside(box, shape).
[[nodiscard]] CoverProof ProveCover(DimsView shape, std::vector<BoxView> boxes);
[[nodiscard]] CoverProof ProveCover(DimsView shape, const std::vector<Box>& boxes);

}  // namespace ckpt

#endif  // CKPT_CORE_TENSOR_BOX_H_
