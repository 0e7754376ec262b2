#include "trainer/data/internal/permutation.h"

#include <bit>

#include "core/base/check.h"
#include "trainer/random/philox.h"

namespace ckpt::trainer {
namespace {

// Each half is replaced this many times. Four rounds in all make a strong pseudorandom permutation
// of large domains (Luby, Rackoff 1988). Small domains, whose halves have only a few bits, need
// more rounds to be fair.
constexpr std::uint32_t kRoundsPerHalf = 4;

constexpr std::uint64_t Mask(int bits) { return (std::uint64_t{1} << bits) - 1; }

}  // namespace

Permutation::Permutation(std::array<std::uint32_t, 2> key, std::uint64_t number, std::uint64_t size)
    : key_(key), number_(number), size_(size) {
  CKPT_CHECK(size > 0 && size <= std::uint64_t{1} << 63);
  const auto bits = static_cast<int>(std::bit_width(size - 1));
  low_bits_ = (bits + 1) / 2;
  high_bits_ = bits / 2;
}

std::uint64_t Permutation::operator[](std::uint64_t position) const {
  CKPT_CHECK(position < size_);
  std::uint64_t value = position;
  do {
    value = Encrypt(value);
  } while (value >= size_);
  return value;
}

// The halves differ in width by one bit if `bits` is odd. Each round replaces one half by itself
// xor a function of the other half; the same round undoes it.
std::uint64_t Permutation::Encrypt(std::uint64_t value) const {
  std::uint64_t low = value & Mask(low_bits_);
  std::uint64_t high = value >> low_bits_;
  const auto mix = [this](std::uint64_t half, std::uint32_t round) {
    const auto bits =
        Philox({static_cast<std::uint32_t>(half), round, static_cast<std::uint32_t>(number_),
                static_cast<std::uint32_t>(number_ >> 32)},
               key_);
    return std::uint64_t{bits[0]};
  };
  for (std::uint32_t round = 0; round < 2 * kRoundsPerHalf; round += 2) {
    high ^= mix(low, round) & Mask(high_bits_);
    low ^= mix(high, round + 1) & Mask(low_bits_);
  }
  return high << low_bits_ | low;
}

}  // namespace ckpt::trainer
