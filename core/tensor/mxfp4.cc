#include "core/tensor/mxfp4.h"

#include <bit>
#include <cstdint>
#include <cstring>

#include "core/base/check.h"
#include "core/base/widest_vectors.h"

namespace ckpt {
namespace {

constexpr std::uint32_t kNanScale = 255;
constexpr std::uint32_t kBf16Nan = 0x7FC0U;
// The exponent and the bit behind it, moved to where float32 has them.
constexpr int kNibbleShift = 22;
// The difference of the two exponent biases, at float32's exponent position.
constexpr std::uint32_t kNibbleRebias = 126U << 23;

constexpr std::uint32_t kHalfBits = 0x3F000000U;

// 2^(scale - 127). The smallest is not a normal number of float32.
float PowerOfTwo(std::uint32_t scale) {
  return std::bit_cast<float>(scale == 0 ? 1U << 22 : scale << 23);
}

// The bits of the bfloat16 that a code of four bits means, times `factor`. No bit is lost: the
// product has two significant ones at most.
std::uint32_t Decode(std::uint32_t code, float factor) {
  const std::uint32_t sign = (code & 8U) << 28;
  const std::uint32_t magnitude = (code & 7U) << kNibbleShift;
  const std::uint32_t half = (code & 1U) * kHalfBits;
  const std::uint32_t number = magnitude < (1U << 23) ? half : magnitude + kNibbleRebias;
  const float value = std::bit_cast<float>(sign | number) * factor;
  return std::bit_cast<std::uint32_t>(value) >> 16;
}

void FillWithNan(std::byte* out) {
  for (std::size_t i = 0; i < kMxfp4BlockElements; ++i) {
    const auto nan = static_cast<std::uint16_t>(kBf16Nan);
    std::memcpy(out + i * sizeof nan, &nan, sizeof nan);
  }
}

}  // namespace

void DecodeMxfp4(ByteSpan blocks, ByteSpan scales, MutableByteSpan out) {
  CKPT_CHECK(blocks.size() == scales.size() * kMxfp4BlockBytes);
  CKPT_CHECK(out.size() == scales.size() * kMxfp4BlockElements * 2);
  WithWidestVectors([&] {
    for (std::size_t b = 0; b < scales.size(); ++b) {
      const std::byte* const block = blocks.data() + b * kMxfp4BlockBytes;
      std::byte* const values = out.data() + b * kMxfp4BlockElements * 2;
      const auto scale = std::to_integer<std::uint32_t>(scales[b]);
      if (scale == kNanScale) {
        FillWithNan(values);
        continue;
      }
      const float factor = PowerOfTwo(scale);
      for (std::size_t i = 0; i < kMxfp4BlockBytes; ++i) {
        const auto both = std::to_integer<std::uint32_t>(block[i]);
        const std::uint32_t pair = Decode(both & 15U, factor) | Decode(both >> 4, factor) << 16;
        std::memcpy(values + i * sizeof pair, &pair, sizeof pair);
      }
    }
  });
}

}  // namespace ckpt
