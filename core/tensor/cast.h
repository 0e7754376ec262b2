// Conversion between floating-point element types.
#ifndef CKPT_CORE_TENSOR_CAST_H_
#define CKPT_CORE_TENSOR_CAST_H_

#include <cstdint>
#include <optional>

#include "core/base/bytes.h"
#include "core/tensor/dtype.h"

namespace ckpt {

// Rounds to nearest, ties to even; a NaN stays a NaN.
[[nodiscard]] std::uint16_t ToBf16Bits(float value);
[[nodiscard]] std::uint16_t ToFp16Bits(float value);
[[nodiscard]] float FromBf16Bits(std::uint16_t bits);
[[nodiscard]] float FromFp16Bits(std::uint16_t bits);

// The smaller of the dtypes that hold every value of both: float32 of bfloat16 and float16. Nothing if elements cannot be
// converted.
[[nodiscard]] std::optional<DType> CommonDtype(DType a, DType b);

// Converts elements of `from` in `in` to elements of `to` in `out`: widening is exact, narrowing
// rounds once to nearest even. float64 narrows through float32 only where the result is float32.
//
// Returns how many finite values became infinite.
// REQUIRES: IsCastable of both, equal element counts, no overlap.
std::uint64_t CastElements(DType from, ByteSpan in, DType to, MutableByteSpan out);

}  // namespace ckpt

#endif  // CKPT_CORE_TENSOR_CAST_H_
