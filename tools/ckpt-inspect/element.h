// Single elements of tensors as numbers and as exact decimal text.
#ifndef CKPT_TOOLS_CKPT_INSPECT_ELEMENT_H_
#define CKPT_TOOLS_CKPT_INSPECT_ELEMENT_H_

#include <array>
#include <cstddef>
#include <string>

#include "core/tensor/dtype.h"

namespace ckpt::inspect {

// The real numbers in one element: one, or two in a complex number (real, imaginary) and in the
// byte of float4_e2m1fn_x2 (low nibble, high nibble). `long double` holds every value of every
// type, 64-bit integers included.
struct ElementParts {
  std::array<long double, 2> values = {};
  int count = 1;
};

// REQUIRES: `at` points at ElementBytes(dtype) bytes.
[[nodiscard]] ElementParts DecodeElement(DType dtype, const std::byte* at);

// Whether the numbers of a type can be ordered: all but complex ones.
[[nodiscard]] bool IsReal(DType dtype);

// As JSON: `true`, an integer, the shortest decimal that reads back as the same double, {"$float":
// "nan"} or "inf" or
// "-inf", and [a, b] for an element of two numbers.
void AppendElement(DType dtype, const std::byte* at, std::string& out);
// One number of an element of this type, the same way. `value` came from DecodeElement.
void AppendNumber(DType dtype, long double value, std::string& out);

}  // namespace ckpt::inspect

#endif  // CKPT_TOOLS_CKPT_INSPECT_ELEMENT_H_
