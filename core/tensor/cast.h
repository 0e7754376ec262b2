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

// The smallest dtype that holds every value of both: for bfloat16 and float16 that is float32.
// Nothing if elements of either cannot be converted.
[[nodiscard]] std::optional<DType> CommonDtype(DType a, DType b);

// Converts the elements of `in` from `from` to `to`, into `out`. Widening is exact; narrowing
// rounds once to nearest even. float64 narrows through float32 only where the result is float32.
//
// Returns how many finite values became infinite.
// REQUIRES: IsCastable of both, equal element counts, no overlap.
std::uint64_t CastElements(DType from, ByteSpan in, DType to, MutableByteSpan out);

}  // namespace ckpt

#endif  // CKPT_CORE_TENSOR_CAST_H_
