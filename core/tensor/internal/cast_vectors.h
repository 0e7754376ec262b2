// Conversions with the processor's own instructions, many elements at a time, if it has them.
#ifndef CKPT_CORE_TENSOR_INTERNAL_CAST_VECTORS_H_
#define CKPT_CORE_TENSOR_INTERNAL_CAST_VECTORS_H_

#include <cstddef>

#include "core/tensor/dtype.h"

namespace ckpt::internal {

// The bits of all of these equal those of the portable loops in cast.cc.

// Elements that a CastKernel converts at once.
inline constexpr std::size_t kKernelElements = 64;
// Converts `count` elements, a multiple of kKernelElements. Returns false only if no finite value
// can have become infinite.
using CastKernel = bool (*)(const std::byte* in, std::byte* out, std::size_t count);
// nullptr if the processor lacks the instructions. REQUIRES: two different castable dtypes.
[[nodiscard]] CastKernel FindCastKernel(DType from, DType to);

// For processors with fewer instructions. Each converts the first elements of `in`, as many as fill
// whole vectors, and returns how many: 0 if the processor lacks these, too.
[[nodiscard]] std::size_t WidenFp16Vectors(const std::byte* in, std::byte* out, std::size_t count);
[[nodiscard]] std::size_t NarrowToFp16Vectors(const std::byte* in, std::byte* out,
                                              std::size_t count);

}  // namespace ckpt::internal

#endif  // CKPT_CORE_TENSOR_INTERNAL_CAST_VECTORS_H_
