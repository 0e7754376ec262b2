#include "trainer/ops/exact_sum.h"

#include <bit>
#include <cmath>
#include <limits>

namespace ckpt::trainer {
namespace {

__extension__ using Uint128 = unsigned __int128;
using Limbs = ExactSum::Limbs;

constexpr int kLimbBits = 32;
constexpr std::uint64_t kLimbMask = 0xFFFF'FFFF;
constexpr std::size_t kTop = ExactSum::kLimbs - 2;  // signed: takes the carries out of the range
constexpr std::size_t kNotFinite = ExactSum::kLimbs - 1;
// A term adds less than 2³² to a limb. So 2³⁰ terms and as many carried sums fit into 63 bits.
constexpr std::int64_t kMaxWaiting = std::int64_t{1} << 30;

constexpr int kFractionBits = 52;
constexpr std::uint64_t kFractionMask = (std::uint64_t{1} << kFractionBits) - 1;
constexpr std::uint64_t kExponentMask = 0x7FF;
constexpr int kLowestExponent = -1074;  // of the lowest bit of limb 0

// Carries, so that all limbs below the top are in [0, 2³²). The number stays the same.
void Carry(Limbs& limbs) {
  std::int64_t carry = 0;
  for (std::size_t i = 0; i < kTop; ++i) {
    const std::int64_t limb = limbs[i] + carry;
    limbs[i] = static_cast<std::int64_t>(static_cast<std::uint64_t>(limb) & kLimbMask);
    carry = limb >> kLimbBits;  // rounds down
  }
  limbs[kTop] += carry;
}

// Bit `position` of a carried, non-negative number.
bool Bit(const Limbs& limbs, int position) {
  return (limbs[static_cast<std::size_t>(position / kLimbBits)] >> (position % kLimbBits) & 1) != 0;
}

// The highest bit that is set; -1 for zero.
int HighestBit(const Limbs& limbs) {
  for (std::size_t i = kTop + 1; i-- > 0;) {
    if (limbs[i] == 0) continue;
    return static_cast<int>(i) * kLimbBits +
           static_cast<int>(std::bit_width(static_cast<std::uint64_t>(limbs[i]))) - 1;
  }
  return -1;
}

bool AnyBitBelow(const Limbs& limbs, int position) {
  const auto limb = static_cast<std::size_t>(position / kLimbBits);
  for (std::size_t i = 0; i < limb; ++i) {
    if (limbs[i] != 0) return true;
  }
  return (limbs[limb] & ((std::int64_t{1} << position % kLimbBits) - 1)) != 0;
}

// Rounds a carried, non-negative number.
double Round(const Limbs& limbs) {
  const int highest = HighestBit(limbs);
  const int lowest = highest > kFractionBits ? highest - kFractionBits : 0;  // lowest bit kept
  std::uint64_t significand = 0;
  for (int position = highest; position >= lowest; --position) {
    significand = significand << 1 | (Bit(limbs, position) ? 1U : 0U);
  }
  if (lowest > 0 && Bit(limbs, lowest - 1)) {
    const bool is_tie = !AnyBitBelow(limbs, lowest - 1);
    if (!is_tie || significand % 2 == 1) ++significand;
  }
  return std::ldexp(static_cast<double>(significand), lowest + kLowestExponent);
}

}  // namespace

void ExactSum::Add(double term) {
  const auto bits = std::bit_cast<std::uint64_t>(term);
  const std::uint64_t exponent = bits >> kFractionBits & kExponentMask;
  if (exponent == kExponentMask) {
    ++limbs_[kNotFinite];
    return;
  }
  if (++num_waiting_ == kMaxWaiting) {
    Carry(limbs_);
    num_waiting_ = 1;
  }
  // The term is significand · 2^(shift - 1074). Subnormals have no leading bit and the weight of
  // exponent 1.
  const std::uint64_t fraction = bits & kFractionMask;
  const std::uint64_t significand = exponent == 0 ? fraction : fraction | (kFractionMask + 1);
  const std::uint64_t shift = exponent == 0 ? 0 : exponent - 1;
  const auto spread = static_cast<Uint128>(significand) << (shift % kLimbBits);
  const std::int64_t sign = (bits >> 63) != 0 ? -1 : 1;
  std::int64_t* const limb = &limbs_[shift / kLimbBits];
  limb[0] += sign * static_cast<std::int64_t>(static_cast<std::uint64_t>(spread) & kLimbMask);
  limb[1] += sign * static_cast<std::int64_t>(static_cast<std::uint64_t>(spread >> 32) & kLimbMask);
  limb[2] += sign * static_cast<std::int64_t>(spread >> 64);
}

void ExactSum::Add(const ExactSum& other) {
  ExactSum carried = other;
  Limbs& mine = limbs();
  for (std::size_t i = 0; i < kLimbs; ++i) mine[i] += carried.limbs()[i];
  Carry(mine);
}

double ExactSum::Value() const {
  if (limbs_[kNotFinite] != 0) return std::numeric_limits<double>::quiet_NaN();
  Limbs limbs = limbs_;
  Carry(limbs);
  if (limbs[kTop] >= 0) return Round(limbs);
  for (std::int64_t& limb : limbs) limb = -limb;
  Carry(limbs);
  return -Round(limbs);
}

ExactSum::Limbs& ExactSum::limbs() {
  Carry(limbs_);
  num_waiting_ = 0;
  return limbs_;
}

}  // namespace ckpt::trainer
