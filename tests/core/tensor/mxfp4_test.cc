#include "core/tensor/mxfp4.h"

#include <array>
#include <cmath>
#include <cstdint>

#include <gmock/gmock.h>

#include "core/base/endian.h"
#include "core/tensor/cast.h"

namespace ckpt {
namespace {

constexpr std::array kMagnitudes = {0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0};

std::uint16_t Want(int code, int scale) {
  if (scale == 255) return 0x7FC0;
  const double magnitude = std::ldexp(kMagnitudes[static_cast<std::size_t>(code & 7)], scale - 127);
  const double value = code >= 8 ? -magnitude : magnitude;
  const std::uint16_t bits = ToBf16Bits(static_cast<float>(value));
  if (magnitude < std::ldexp(1.0, 128)) {
    EXPECT_EQ(static_cast<double>(FromBf16Bits(bits)), value) << "bfloat16 holds every finite one";
  }
  return bits;
}

TEST(Mxfp4, DecodesEveryCodeWithEveryScaleAtEitherEnd) {
  Bytes blocks;
  Bytes scales;
  for (int scale = 0; scale < 256; ++scale) {
    for (int first = 0; first < 16; ++first) {
      scales.push_back(static_cast<std::byte>(scale));
      for (int second = 0; second < 16; ++second) {
        blocks.push_back(static_cast<std::byte>(second << 4 | first));
      }
    }
  }
  Bytes values(scales.size() * kMxfp4BlockElements * 2);
  DecodeMxfp4(blocks, scales, values);
  const std::byte* at = values.data();
  for (int scale = 0; scale < 256; ++scale) {
    for (int first = 0; first < 16; ++first) {
      for (int second = 0; second < 16; ++second, at += 4) {
        ASSERT_EQ(LoadLe<std::uint16_t>(at), Want(first, scale)) << first << " at " << scale;
        ASSERT_EQ(LoadLe<std::uint16_t>(at + 2), Want(second, scale)) << second << " at " << scale;
      }
    }
  }
}

TEST(Mxfp4, OfNoBlocksIsNothing) {
  const Bytes untouched(16, std::byte{0xA5});
  Bytes around = untouched;
  DecodeMxfp4({}, {}, MutableByteSpan(around).subspan(8, 0));
  EXPECT_EQ(around, untouched);
}

}  // namespace
}  // namespace ckpt
