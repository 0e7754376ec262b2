// Compares the elements of two tensors while they are read.
#ifndef CKPT_TOOLS_CKPT_INSPECT_ELEMENT_DIFF_H_
#define CKPT_TOOLS_CKPT_INSPECT_ELEMENT_DIFF_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "core/base/bytes.h"
#include "core/tensor/dtype.h"

namespace ckpt::inspect {

// Elements of one dtype are equal if their bits are, and under a tolerance also if |a - b| is
// finite and at most absolute + relative * |b|. So a NaN equals a NaN of the same bits and nothing
// else, and 0.0 differs from -0.0 by 0. Elements of two dtypes are equal if their numbers are; a
// NaN equals nothing then.
struct Tolerance {
  bool exact = true;
  double absolute = 0;
  double relative = 0;
};

// The bytes of one element.
using ElementBits = std::array<std::byte, 16>;

struct FirstDifference {
  std::int64_t position = 0;  // in C order
  ElementBits a = {};
  ElementBits b = {};
};

// What a comparison finds.
struct ElementDiff {
  std::int64_t num_elements = 0;
  std::int64_t num_differing = 0;
  // Differing elements whose difference is no number, because one of them is a NaN.
  std::int64_t num_nan = 0;
  // The largest |a - b| of differing elements: of complex ones the distance, of a pair of float4
  // the larger difference. Nothing if none is a number.
  std::optional<long double> max_abs;
  std::optional<FirstDifference> first;
};

// For one thread.
class ElementComparer {
 public:
  ElementComparer(DType a, DType b, const Tolerance& tolerance);

  // Adds elements that follow those added before. REQUIRES: equally many of both, and whole ones.
  void Add(ByteSpan a, ByteSpan b);

  [[nodiscard]] const ElementDiff& diff() const { return diff_; }

 private:
  // Numbers of a dtype whose every value a double holds.
  struct Doubles {
    explicit Doubles(DType d);

    void Load(ByteSpan elements);

    DType dtype;
    bool can_hold;
    std::vector<double> of_byte;  // the value of each byte, if elements are bytes
    std::vector<double> values;   // of one stripe
  };

  void AddDoubles(ByteSpan a, ByteSpan b, std::int64_t count);
  void AddOne(const std::byte* a, const std::byte* b, std::int64_t position);
  void SetFirst(const std::byte* a, const std::byte* b, std::int64_t position);

  Tolerance tolerance_;
  Doubles a_;
  Doubles b_;
  ElementDiff diff_;
};

}  // namespace ckpt::inspect

#endif  // CKPT_TOOLS_CKPT_INSPECT_ELEMENT_DIFF_H_
