// An element of a pair of tensors: where each side stores it, and what it is as text.
#ifndef CKPT_TOOLS_CKPT_INSPECT_INTERNAL_DIFFERING_ELEMENT_H_
#define CKPT_TOOLS_CKPT_INSPECT_INTERNAL_DIFFERING_ELEMENT_H_

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>

#include "converters/verbs/comparison.h"
#include "core/checkpoint/index.h"
#include "core/tensor/shape.h"
#include "tools/ckpt-inspect/element_diff.h"
#include "tools/ckpt-inspect/tensor_diff.h"

namespace ckpt::inspect {

// The index of the element at `position` in C order.
[[nodiscard]] Dims IndexAt(DimsView shape, std::int64_t position);

// An element where a side stores it.
struct StoredElement {
  std::string key;
  Dims index;
  std::string file;
};

// The element of `asked` at `index`, or its copy number `copy` if there are so many. Nothing if it
// is no stored element but a zero.
[[nodiscard]] std::optional<StoredElement> StoredAt(const CheckpointIndex& side,
                                                    const TensorAsked& asked, const Dims& index,
                                                    std::size_t copy);

// The element as JSON (AppendElement).
[[nodiscard]] std::string ValueText(DType dtype, const ElementBits& bits);
// "0x3f800000": the element as one little-endian number.
[[nodiscard]] std::string BitsText(DType dtype, const ElementBits& bits);
// The largest difference. Integers differ by an integer, up to all of 64 bits. REQUIRES: there is
// one (`max_abs`).
[[nodiscard]] std::string DifferenceText(const TensorDiff& diff);

}  // namespace ckpt::inspect

#endif  // CKPT_TOOLS_CKPT_INSPECT_INTERNAL_DIFFERING_ELEMENT_H_
