#include "trainer/bench/internal/counter_random.h"

#include <cmath>

#include "core/base/hash.h"

namespace ckpt::train {

CounterRandom::CounterRandom(std::uint32_t seed, std::string_view name)
    : key_((std::uint64_t{seed} << 32) + Crc32(AsBytes(name))) {}

std::uint32_t CounterRandom::Bits(std::uint64_t i) const {
  std::uint64_t z = key_ + (i + 1) * 0x9E3779B97F4A7C15U;
  z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9U;
  z = (z ^ (z >> 27)) * 0x94D049BB133111EBU;
  return static_cast<std::uint32_t>((z ^ (z >> 31)) >> 33);
}

float CounterRandom::Weight(std::uint64_t i) const {
  static const auto kWidth = static_cast<float>(0.02 * std::sqrt(12.0));
  return (static_cast<float>(Bits(i) >> 7) * 0x1p-24F - 0.5F) * kWidth;
}

}  // namespace ckpt::train
