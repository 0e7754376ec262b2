#include "trainer/random/philox.h"

#include <cstddef>

#include "core/base/check.h"
#include "trainer/random/internal/normal_pairs.h"

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

// Blocks that are computed together.
constexpr std::size_t kBlocks = kPairsAtOnce / 2;

// Block `first` of the normal numbers and those after it, by word. Round by round, so that
// compilers make vector code of it.
std::array<std::array<std::uint32_t, kBlocks>, 4> NormalBlocks(Key key, std::uint64_t first) {
  std::array<std::array<std::uint32_t, kBlocks>, 4> words{};
  for (std::size_t i = 0; i < kBlocks; ++i) {
    words[0][i] = Low(first + i);
    words[1][i] = High(first + i);
    words[3][i] = static_cast<std::uint32_t>(Use::kNormal);
  }
  for (int round = 0; round < kRounds; ++round) {
    for (std::size_t i = 0; i < kBlocks; ++i) {
      const std::uint64_t product0 = kMultiplier0 * words[0][i];
      const std::uint64_t product1 = kMultiplier1 * words[2][i];
      words[0][i] = High(product1) ^ words[1][i] ^ key[0];
      words[1][i] = Low(product1);
      words[2][i] = High(product0) ^ words[3][i] ^ key[1];
      words[3][i] = Low(product0);
    }
    key[0] += kWeyl0;
    key[1] += kWeyl1;
  }
  return words;
}

void FillBlocks(Key key, std::uint64_t first, std::span<float, 4 * kBlocks> out) {
  const auto words = NormalBlocks(key, first);
  std::array<std::uint32_t, kPairsAtOnce> radius_bits;
  std::array<std::uint32_t, kPairsAtOnce> angle_bits;
  for (std::size_t i = 0; i < kBlocks; ++i) {
    radius_bits[2 * i] = words[0][i];
    angle_bits[2 * i] = words[1][i];
    radius_bits[2 * i + 1] = words[2][i];
    angle_bits[2 * i + 1] = words[3][i];
  }
  NormalPairs(radius_bits, angle_bits, out);
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

void FillNormal(Key key, std::uint64_t begin, std::span<float> out) {
  std::size_t filled = 0;
  while (filled < out.size()) {
    const std::uint64_t position = begin + filled;
    if (position % 4 == 0 && out.size() - filled >= 4 * kBlocks) {
      FillBlocks(key, position / 4, out.subspan(filled).first<4 * kBlocks>());
      filled += 4 * kBlocks;
      continue;
    }
    const Block bits = BlockAt(key, position / 4, 0, Use::kNormal);
    std::array<float, 4> numbers;
    NormalPair(bits[0], bits[1], &numbers[0]);
    NormalPair(bits[2], bits[3], &numbers[2]);
    for (std::size_t i = position % 4; i < 4 && filled < out.size(); ++i)
      out[filled++] = numbers[i];
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
