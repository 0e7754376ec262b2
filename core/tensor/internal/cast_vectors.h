// Conversions that the processor makes many elements at a time, where it can.
#ifndef CKPT_CORE_TENSOR_INTERNAL_CAST_VECTORS_H_
#define CKPT_CORE_TENSOR_INTERNAL_CAST_VECTORS_H_

#include <cstddef>

namespace ckpt::internal {

// Each converts the first elements of `in`, as many as it can by whole vectors, and returns how many: none where the
// processor lacks the instructions. The bits are those of the portable loops in cast.cc, which convert the rest.
[[nodiscard]] std::size_t WidenFp16Vectors(const std::byte* in, std::byte* out, std::size_t count);
[[nodiscard]] std::size_t NarrowToFp16Vectors(const std::byte* in, std::byte* out,
                                              std::size_t count);
// float64 to float32, rounded to odd.
[[nodiscard]] std::size_t RoundToOddVectors(const std::byte* in, std::byte* out, std::size_t count);

}  // namespace ckpt::internal

#endif  // CKPT_CORE_TENSOR_INTERNAL_CAST_VECTORS_H_
