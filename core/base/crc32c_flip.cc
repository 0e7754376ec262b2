#include "core/base/crc32c_flip.h"

#include <algorithm>
#include <array>
#include <bit>

#include "core/base/check.h"

namespace ckpt {
namespace {

// CRC-32C is linear. If two texts of equal length differ in one bit, their checksums differ by what
// this bit leaves in the shift register after all bits behind it were shifted in. After s shifts
// that is x^s modulo the polynomial, so finding the bit's position is a discrete logarithm. It is
// found with baby steps and giant steps: multiply the difference by x^-B, x^-2B, … until the result
// is one of x^0 … x^(B-1).
constexpr std::uint32_t kPolynomial = 0x82F63B78;  // Castagnoli, reflected
constexpr std::uint32_t kBabySteps = 4096;
constexpr std::uint64_t kMaxBytes = std::uint64_t{1} << 28;

// One shift of the register forward, and one back.
constexpr std::uint32_t Shift(std::uint32_t state) {
  return (state >> 1) ^ ((state & 1U) != 0 ? kPolynomial : 0);
}
constexpr std::uint32_t ShiftBack(std::uint32_t state) {
  // Only the polynomial has the highest bit set, so that bit tells whether it was added.
  const bool was_added = (state >> 31) != 0;
  return ((state ^ (was_added ? kPolynomial : 0)) << 1) | (was_added ? 1U : 0U);
}

struct BabyStep {
  std::uint32_t state = 0;
  std::uint32_t shifts = 0;
};

class ShiftTable {
 public:
  ShiftTable() {
    std::uint32_t state = 1;  // the state of a bit that just entered the register
    for (std::uint32_t s = 0; s < kBabySteps; ++s, state = Shift(state))
      baby_steps_[s] = {state, s};
    std::sort(baby_steps_.begin(), baby_steps_.end(),
              [](const BabyStep& a, const BabyStep& b) { return a.state < b.state; });
    for (std::size_t i = 0; i < giant_step_.size(); ++i) {
      std::uint32_t image = std::uint32_t{1} << i;
      for (std::uint32_t s = 0; s < kBabySteps; ++s) image = ShiftBack(image);
      giant_step_[i] = image;
    }
  }

  // The number of shifts, at most `max_shifts`, that give `state`.
  [[nodiscard]] std::optional<std::uint64_t> CountShifts(std::uint32_t state,
                                                         std::uint64_t max_shifts) const {
    for (std::uint64_t giant = 0; giant <= max_shifts; giant += kBabySteps) {
      const auto baby = std::lower_bound(
          baby_steps_.begin(), baby_steps_.end(), state,
          [](const BabyStep& step, std::uint32_t value) { return step.state < value; });
      if (baby != baby_steps_.end() && baby->state == state) {
        const std::uint64_t shifts = giant + baby->shifts;
        return shifts <= max_shifts ? std::optional(shifts) : std::nullopt;
      }
      state = GiantStep(state);
    }
    return std::nullopt;
  }

 private:
  // Shifts back kBabySteps times. The map is linear: the result is the sum of the results of each
  // bit.
  [[nodiscard]] std::uint32_t GiantStep(std::uint32_t state) const {
    std::uint32_t image = 0;
    for (; state != 0; state &= state - 1) {
      image ^= giant_step_[static_cast<std::size_t>(std::countr_zero(state))];
    }
    return image;
  }

  std::array<BabyStep, kBabySteps> baby_steps_;  // sorted by state
  std::array<std::uint32_t, 32> giant_step_;     // the result of each single bit
};

}  // namespace

std::optional<FlippedBit> FindFlippedBit(std::uint32_t expected, std::uint32_t actual,
                                         std::uint64_t size_bytes) {
  CKPT_CHECK(size_bytes < kMaxBytes);
  static const ShiftTable table;
  if (expected == actual) return std::nullopt;
  const std::uint64_t num_bits = size_bytes * 8;
  const std::optional<std::uint64_t> shifts = table.CountShifts(expected ^ actual, num_bits);
  // Even the last bit is shifted once. Within a byte the least significant bit comes first.
  if (!shifts || *shifts == 0) return std::nullopt;
  const std::uint64_t position = num_bits - *shifts;
  return FlippedBit{.offset_bytes = position / 8, .bit = static_cast<int>(position % 8)};
}

}  // namespace ckpt
