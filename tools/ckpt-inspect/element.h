// Single elements of tensors as numbers and as exact decimal text.
#ifndef CKPT_TOOLS_CKPT_INSPECT_ELEMENT_H_
#define CKPT_TOOLS_CKPT_INSPECT_ELEMENT_H_

#include <array>
#include <cstddef>
#include <string>

#include "core/tensor/dtype.h"

namespace ckpt::inspect {

// The real numbers in one element: usually one; two in a complex number (real, imaginary) and in
// the byte of float4_e2m1fn_x2 (low nibble, high nibble). `long double` holds every value of every
// type, including 64-bit integers.
struct ElementParts {
  std::array<long double, 2> values = {};
  int count = 1;
};

// REQUIRES: `at` points at ElementBytes(dtype) bytes.
[[nodiscard]] ElementParts DecodeElement(DType dtype, const std::byte* at);

// Whether numbers of this type can be ordered: all but complex ones.
[[nodiscard]] bool IsReal(DType dtype);

// Appends the element as JSON: `true`, an integer, the shortest decimal that reads back as the same
// double, {"$float": "nan"} (or "inf", "-inf"), and [a, b] for an element of two numbers.
void AppendElement(DType dtype, const std::byte* at, std::string& out);
// Appends one number of an element of this type in the same way. `value` came from DecodeElement.
void AppendNumber(DType dtype, long double value, std::string& out);

}  // namespace ckpt::inspect

#endif  // CKPT_TOOLS_CKPT_INSPECT_ELEMENT_H_
