#include "trainer/random/philox.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <numbers>
#include <thread>
#include <vector>

#include "core/base/check.h"

namespace ckpt::trainer {
namespace {

using Block = std::array<std::uint32_t, 4>;
using Key = std::array<std::uint32_t, 2>;
__extension__ using Uint128 = unsigned __int128;

// Constants from table 2 and section 4.3 of the paper.
constexpr int kRounds = 10;
constexpr std::uint64_t kMultiplier0 = 0xD2511F53;
constexpr std::uint64_t kMultiplier1 = 0xCD9E8D57;
constexpr std::uint32_t kWeyl0 = 0x9E3779B9;
constexpr std::uint32_t kWeyl1 = 0xBB67AE85;

// The last word of a counter: the purpose of the block, so that different uses of a stream have
// different bits.
enum class Use : std::uint32_t { kNormal = 0, kUniform = 1 };

constexpr std::uint32_t Low(std::uint64_t value) { return static_cast<std::uint32_t>(value); }
constexpr std::uint32_t High(std::uint64_t value) {
  return static_cast<std::uint32_t>(value >> 32);
}

Block BlockAt(Key key, std::uint64_t position, std::uint32_t attempt, Use use) {
  return Philox({Low(position), High(position), attempt, static_cast<std::uint32_t>(use)}, key);
}

// Box-Muller: two normal numbers from two words. Computed in double; rounding to float removes the
// small differences between mathematical libraries.
void NormalPair(std::uint32_t radius_bits, std::uint32_t angle_bits, float* out) {
  constexpr double kUnit = 0x1p-32;
  const double uniform = (radius_bits + 0.5) * kUnit;  // in (0, 1): the logarithm is finite
  const double radius = std::sqrt(-2 * std::log(uniform));
  const double angle = 2 * std::numbers::pi * kUnit * angle_bits;
  out[0] = static_cast<float>(radius * std::cos(angle));
  out[1] = static_cast<float>(radius * std::sin(angle));
}

// Numbers that are worth a thread.
constexpr std::size_t kThreadNumbers = 16 << 10;

void FillPart(Key key, std::uint64_t begin, std::span<float> out) {
  std::size_t filled = 0;
  while (filled < out.size()) {
    const std::uint64_t position = begin + filled;
    const Block bits = BlockAt(key, position / 4, 0, Use::kNormal);
    std::array<float, 4> numbers;
    NormalPair(bits[0], bits[1], &numbers[0]);
    NormalPair(bits[2], bits[3], &numbers[2]);
    for (std::size_t i = position % 4; i < 4 && filled < out.size(); ++i)
      out[filled++] = numbers[i];
  }
}

}  // namespace

Block Philox(Block counter, Key key) {
  for (int round = 0; round < kRounds; ++round) {
    const std::uint64_t product0 = kMultiplier0 * counter[0];
    const std::uint64_t product1 = kMultiplier1 * counter[2];
    counter = {High(product1) ^ counter[1] ^ key[0], Low(product1),
               High(product0) ^ counter[3] ^ key[1], Low(product0)};
    key[0] += kWeyl0;
    key[1] += kWeyl1;
  }
  return counter;
}

// The name passes through the generator in blocks of 16 bytes, each mixed with the result so far.
// Its length comes first, so a name that is the beginning of another gives an unrelated key.
Key StreamKey(std::uint64_t seed, std::string_view name) {
  const Key seed_key = {Low(seed), High(seed)};
  Block state = Philox({Low(name.size()), High(name.size()), 0, 0}, seed_key);
  for (std::size_t begin = 0; begin < name.size(); begin += sizeof(Block)) {
    const std::string_view part = name.substr(begin, sizeof(Block));
    for (std::size_t i = 0; i < part.size(); ++i) {
      state[i / 4] ^= static_cast<std::uint32_t>(static_cast<unsigned char>(part[i]))
                      << (8 * (i % 4));
    }
    state = Philox(state, seed_key);
  }
  return {state[0], state[1]};
}

void FillNormal(Key key, std::uint64_t begin, std::span<float> out, int threads) {
  const std::size_t parts =
      std::clamp<std::size_t>(out.size() / kThreadNumbers, 1, static_cast<std::size_t>(threads));
  std::vector<std::jthread> helpers;
  for (std::size_t part = 0; part < parts; ++part) {
    const std::size_t first = out.size() * part / parts;
    const std::span<float> mine = out.subspan(first, out.size() * (part + 1) / parts - first);
    if (part + 1 == parts) {
      FillPart(key, begin + first, mine);
    } else {
      helpers.emplace_back([key, at = begin + first, mine] { FillPart(key, at, mine); });
    }
  }
}

// Lemire, "Fast Random Integer Generation in an Interval" (2019). The high half of the product is
// the number. If the low half falls into an incomplete share, another number is drawn.
std::uint64_t UniformBelow(Key key, std::uint64_t position, std::uint64_t bound) {
  CKPT_CHECK(bound > 0);
  const std::uint64_t surplus = (0 - bound) % bound;  // 2⁶⁴ mod bound
  for (std::uint32_t attempt = 0;; ++attempt) {
    const Block block = BlockAt(key, position, attempt, Use::kUniform);
    const std::uint64_t bits = static_cast<std::uint64_t>(block[1]) << 32 | block[0];
    const auto product = static_cast<Uint128>(bits) * bound;
    if (static_cast<std::uint64_t>(product) >= surplus) {
      return static_cast<std::uint64_t>(product >> 64);
    }
  }
}

}  // namespace ckpt::trainer
