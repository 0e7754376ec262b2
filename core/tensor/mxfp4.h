// Blocks of 4-bit floats with a power of two for each: the OCP format MXFP4, which gpt-oss is
// published in.
#ifndef CKPT_CORE_TENSOR_MXFP4_H_
#define CKPT_CORE_TENSOR_MXFP4_H_

#include <cstddef>

#include "core/base/bytes.h"

namespace ckpt {

// Elements that share a scale, and the bytes that hold them.
inline constexpr std::size_t kMxfp4BlockElements = 32;
inline constexpr std::size_t kMxfp4BlockBytes = kMxfp4BlockElements / 2;

// Writes bfloat16, which holds every such value: a byte of `blocks` is two elements of 0, 0.5, 1,
// 1.5, 2, 3, 4 or 6 with a sign, the first one in its low half; `scales` has a byte s for each
// block, which multiplies them by 2^(s - 127). Values from 2^128 are infinite. With s = 255 all are
// NaN, 0x7FC0.
//
// REQUIRES: `blocks` has kMxfp4BlockBytes for each byte of `scales`, `out` has
// 2 * kMxfp4BlockElements.
void DecodeMxfp4(ByteSpan blocks, ByteSpan scales, MutableByteSpan out);

}  // namespace ckpt

#endif  // CKPT_CORE_TENSOR_MXFP4_H_
