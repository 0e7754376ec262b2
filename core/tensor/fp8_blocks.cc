#include "core/tensor/fp8_blocks.h"

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstring>

#include "core/base/check.h"
#include "core/base/endian.h"
#include "core/base/widest_vectors.h"

namespace ckpt {
namespace {

constexpr std::uint32_t kInfinityBits = 0x7F800000U;
constexpr std::uint32_t kNanBits = 0x7FC00000U;
// The exponent and the three bits behind it, moved to where float32 has them.
constexpr int kCodeShift = 20;
// The difference of the two exponent biases, at float32's exponent position.
constexpr std::uint32_t kCodeRebias = 120U << 23;
constexpr std::uint32_t kTwoToMinus6 = 121U << 23;  // the smallest normal number

// Loops over this are vectorised: without branches, choosing among results that are all computed.
float Widen(std::uint8_t code) {
  const std::uint32_t sign = (code & 0x80U) << 24;
  const std::uint32_t magnitude = (code & 0x7FU) << kCodeShift;
  // Below the smallest normal exponent there is no implied leading one, so it is subtracted again.
  const std::uint32_t subnormal = std::bit_cast<std::uint32_t>(
      std::bit_cast<float>(magnitude + kTwoToMinus6) - std::bit_cast<float>(kTwoToMinus6));
  const bool is_subnormal = magnitude < (1U << 23);
  const bool is_nan = magnitude == (0x7FU << kCodeShift);
  const std::uint32_t number = is_subnormal ? subnormal : magnitude + kCodeRebias;
  return std::bit_cast<float>(sign | (is_nan ? kNanBits : number));
}

std::uint16_t RoundToBf16(float value) {
  const auto bits = std::bit_cast<std::uint32_t>(value);
  const std::uint32_t rounded = (bits + 0x7FFFU + ((bits >> 16) & 1U)) >> 16;
  const bool is_nan = (bits & 0x7FFFFFFFU) > kInfinityBits;
  return static_cast<std::uint16_t>(is_nan ? kNanBits >> 16 : rounded);
}

}  // namespace

void DecodeFp8Blocks(const BlockedMatrix& matrix, ByteSpan codes, ByteSpan scales,
                     MutableByteSpan out) {
  if (codes.empty()) return;
  const auto rows = static_cast<std::size_t>(matrix.rows);
  const auto columns = static_cast<std::size_t>(matrix.columns);
  const auto block_rows = static_cast<std::size_t>(matrix.block_rows);
  const auto block_columns = std::min(static_cast<std::size_t>(matrix.block_columns), columns);
  const std::size_t blocks_in_row = (columns - 1) / block_columns + 1;
  CKPT_CHECK(codes.size() == rows * columns && out.size() == 2 * codes.size());
  CKPT_CHECK(scales.size() == ((rows - 1) / block_rows + 1) * blocks_in_row * sizeof(float));
  WithWidestVectors([&] {
    for (std::size_t row = 0; row < rows; ++row) {
      const std::byte* const row_codes = codes.data() + row * columns;
      std::byte* const row_out = out.data() + 2 * row * columns;
      const std::byte* const row_scales =
          scales.data() + row / block_rows * blocks_in_row * sizeof(float);
      for (std::size_t block = 0; block < blocks_in_row; ++block) {
        const auto scale = LoadLe<float>(row_scales + block * sizeof(float));
        const std::size_t end = std::min((block + 1) * block_columns, columns);
        for (std::size_t i = block * block_columns; i < end; ++i) {
          const std::uint16_t value =
              RoundToBf16(Widen(std::to_integer<std::uint8_t>(row_codes[i])) * scale);
          std::memcpy(row_out + 2 * i, &value, sizeof value);
        }
      }
    }
  });
}

}  // namespace ckpt
