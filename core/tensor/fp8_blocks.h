// Matrices of 8-bit floats in blocks, each of which has a scale: what DeepSeek-V3 is published in.
#ifndef CKPT_CORE_TENSOR_FP8_BLOCKS_H_
#define CKPT_CORE_TENSOR_FP8_BLOCKS_H_

#include <cstdint>

#include "core/base/bytes.h"

namespace ckpt {

// A matrix cut into blocks of one size; those at the end of rows and columns may be smaller.
struct BlockedMatrix {
  std::int64_t rows = 0;
  std::int64_t columns = 0;
  std::int64_t block_rows = 1;
  std::int64_t block_columns = 1;
};

// Writes bfloat16: each float8_e4m3fn of `codes` times the float32 of its block in `scales`. The
// product is a float32, and rounded from there to the nearest, ties to even. Every NaN is 0x7FC0.
// All three are in C order and little-endian.
//
// REQUIRES: positive block sizes; `codes` holds the matrix, `scales` one number for each block, and
// `out` has twice the size of `codes`.
void DecodeFp8Blocks(const BlockedMatrix& matrix, ByteSpan codes, ByteSpan scales,
                     MutableByteSpan out);

}  // namespace ckpt

#endif  // CKPT_CORE_TENSOR_FP8_BLOCKS_H_
