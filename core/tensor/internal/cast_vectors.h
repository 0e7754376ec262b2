// Conversions with the processor's own instructions, many elements at a time, if it has them.
#ifndef CKPT_CORE_TENSOR_INTERNAL_CAST_VECTORS_H_
#define CKPT_CORE_TENSOR_INTERNAL_CAST_VECTORS_H_

#include <cstddef>

namespace ckpt::internal {

// Each converts the first elements of `in`, as many as fill whole vectors, and returns how many: 0
// if the processor lacks the instructions. The bits equal those of the portable loops in cast.cc,
// which convert the rest.
[[nodiscard]] std::size_t WidenFp16Vectors(const std::byte* in, std::byte* out, std::size_t count);
[[nodiscard]] std::size_t NarrowToFp16Vectors(const std::byte* in, std::byte* out,
                                              std::size_t count);
// float64 to float32, rounded to odd.
[[nodiscard]] std::size_t RoundToOddVectors(const std::byte* in, std::byte* out, std::size_t count);

}  // namespace ckpt::internal

#endif  // CKPT_CORE_TENSOR_INTERNAL_CAST_VECTORS_H_
