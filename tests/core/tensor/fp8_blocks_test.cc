#include "core/tensor/fp8_blocks.h"

#include <bit>
#include <cmath>
#include <limits>
#include <random>
#include <vector>

#include <gmock/gmock.h>

#include "core/base/endian.h"
#include "core/tensor/cast.h"

namespace ckpt {
namespace {

constexpr std::uint16_t kNan = 0x7FC0;

// The value of a code by the definition of the format: four bits of exponent with a bias of 7,
// three behind the point, no infinities.
float ByDefinition(int code) {
  const float sign = code >= 128 ? -1.0F : 1.0F;
  const int exponent = code >> 3 & 15;
  const float fraction = static_cast<float>(code & 7) / 8;
  if ((code & 127) == 127) return std::numeric_limits<float>::quiet_NaN();
  if (exponent == 0) return sign * std::ldexp(fraction, -6);
  return sign * std::ldexp(1 + fraction, exponent - 7);
}

std::uint16_t Want(int code, float scale) {
  const float product = ByDefinition(code) * scale;
  return std::isnan(product) ? kNan : ToBf16Bits(product);
}

Bytes Numbers(const std::vector<float>& numbers) {
  Bytes bytes;
  for (const float number : numbers) AppendLe(number, bytes);
  return bytes;
}

std::uint16_t At(const Bytes& values, std::int64_t i) {
  return LoadLe<std::uint16_t>(values.data() + 2 * i);
}

TEST(Fp8Blocks, DecodesEveryCodeWithEveryKindOfScale) {
  Bytes codes;
  for (int code = 0; code < 256; ++code) codes.push_back(static_cast<std::byte>(code));
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  std::vector<float> scales = {1.0F,
                               -1.0F,
                               0.0F,
                               -0.0F,
                               kInfinity,
                               std::numeric_limits<float>::quiet_NaN(),
                               std::bit_cast<float>(0xFF800001U),  // a NaN that signals
                               std::numeric_limits<float>::max(),
                               std::numeric_limits<float>::min(),
                               std::numeric_limits<float>::denorm_min(),
                               0x1.fffffep-9F};
  std::mt19937 random(1);  // NOLINT(cert-msc51-cpp): the same numbers every time
  for (int i = 0; i < 200; ++i) {
    scales.push_back(std::bit_cast<float>(static_cast<std::uint32_t>(random())));
    scales.push_back(std::ldexp(1 + static_cast<float>(random() % 8388608) / 8388608, -12));
  }
  for (const float scale : scales) {
    Bytes values(512);
    DecodeFp8Blocks({.rows = 1, .columns = 256, .block_rows = 128, .block_columns = 256}, codes,
                    Numbers({scale}), values);
    for (int code = 0; code < 256; ++code) {
      ASSERT_EQ(At(values, code), Want(code, scale)) << code << " times " << scale;
    }
  }
}

TEST(Fp8Blocks, GiveEachElementTheScaleOfItsBlock) {
  for (const BlockedMatrix& matrix :
       {BlockedMatrix{.rows = 5, .columns = 7, .block_rows = 2, .block_columns = 3},
        BlockedMatrix{.rows = 4, .columns = 6, .block_rows = 2, .block_columns = 3},
        BlockedMatrix{.rows = 1, .columns = 1, .block_rows = 128, .block_columns = 128},
        BlockedMatrix{.rows = 130, .columns = 257, .block_rows = 128, .block_columns = 128},
        BlockedMatrix{.rows = 3, .columns = 2, .block_rows = 1, .block_columns = 1}}) {
    const std::int64_t in_row = (matrix.columns + matrix.block_columns - 1) / matrix.block_columns;
    const std::int64_t in_column = (matrix.rows + matrix.block_rows - 1) / matrix.block_rows;
    std::vector<float> scales;
    for (std::int64_t b = 0; b < in_row * in_column; ++b) {
      scales.push_back(static_cast<float>(b + 1) / 16);
    }
    Bytes codes;
    for (std::int64_t i = 0; i < matrix.rows * matrix.columns; ++i) {
      codes.push_back(static_cast<std::byte>(i * 37 % 256));
    }
    Bytes values(2 * codes.size());
    DecodeFp8Blocks(matrix, codes, Numbers(scales), values);
    for (std::int64_t r = 0; r < matrix.rows; ++r) {
      for (std::int64_t c = 0; c < matrix.columns; ++c) {
        const std::int64_t i = r * matrix.columns + c;
        const std::int64_t block = r / matrix.block_rows * in_row + c / matrix.block_columns;
        ASSERT_EQ(At(values, i), Want(std::to_integer<int>(codes[static_cast<std::size_t>(i)]),
                                      scales[static_cast<std::size_t>(block)]))
            << r << ", " << c;
      }
    }
  }
}

TEST(Fp8Blocks, OfNoElementsAreNone) {
  const Bytes untouched(16, std::byte{0xA5});
  Bytes around = untouched;
  const MutableByteSpan none = MutableByteSpan(around).subspan(8, 0);
  DecodeFp8Blocks({.rows = 0, .columns = 4, .block_rows = 2, .block_columns = 2}, {}, {}, none);
  EXPECT_EQ(around, untouched);
  DecodeFp8Blocks({.rows = 4, .columns = 0, .block_rows = 2, .block_columns = 2}, {}, {}, none);
  EXPECT_EQ(around, untouched);
}

}  // namespace
}  // namespace ckpt
