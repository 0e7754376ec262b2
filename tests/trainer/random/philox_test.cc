#include "trainer/random/philox.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <random>
#include <set>
#include <string>
#include <vector>

#include <gmock/gmock.h>

#include "trainer/random/internal/normal_pairs.h"

namespace ckpt::trainer {
namespace {

using ::testing::ElementsAre;

constexpr std::array<std::uint32_t, 2> kKey = {0x493F0988, 0xB2B7924F};

// Random123, tests/kat_vectors, philox4x32 10.
TEST(PhiloxTest, GivesTheKnownAnswers) {
  EXPECT_THAT(Philox({0, 0, 0, 0}, {0, 0}),
              ElementsAre(0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8));
  constexpr std::uint32_t kOnes = 0xFFFFFFFF;
  EXPECT_THAT(Philox({kOnes, kOnes, kOnes, kOnes}, {kOnes, kOnes}),
              ElementsAre(0x408F276D, 0x41C83B0E, 0xA20BC7C6, 0x6D5451FD));
  EXPECT_THAT(Philox({0x243F6A88, 0x85A308D3, 0x13198A2E, 0x03707344}, {0xA4093822, 0x299F31D0}),
              ElementsAre(0xD16CFE09, 0x94FDCCEB, 0x5001E420, 0x24126EA1));
}

// This and the next but one were computed by an independent program.
TEST(StreamKeyTest, NeverChanges) {
  EXPECT_EQ(StreamKey(1234, "decoder.layers.0.mlp.linear_fc1.weight"), kKey);
  EXPECT_THAT(StreamKey(std::uint64_t{1234} << 32 | 5, ""), ElementsAre(0x0600DE1A, 0xF98B9958));
}

TEST(StreamKeyTest, DiffersBySeedAndByName) {
  std::set<std::array<std::uint32_t, 2>> keys;
  for (std::uint64_t seed = 0; seed < 100; ++seed) {
    for (int layer = 0; layer < 100; ++layer) {
      keys.insert(StreamKey(seed, "decoder.layers." + std::to_string(layer) + ".weight"));
    }
  }
  keys.insert(StreamKey(0, std::string(16, '\0')));
  keys.insert(StreamKey(0, std::string(17, '\0')));
  keys.insert(StreamKey(0, ""));
  EXPECT_EQ(keys.size(), 10'003U);
}

TEST(FillNormalTest, NeverChanges) {
  std::vector<float> out(6);
  FillNormal(kKey, 0, out);
  const std::vector<float> want = {-0.18075022302776436F, -0.295182814971444F,
                                   0.0767387336423437F,   0.9065048699502636F,
                                   -0.6823315045948564F,  1.2423602594581953F};
  for (std::size_t i = 0; i < want.size(); ++i) EXPECT_FLOAT_EQ(out[i], want[i]) << i;
  FillNormal(kKey, (std::uint64_t{1} << 34) + 1, std::span(out).first(1));
  EXPECT_FLOAT_EQ(out[0], 0.13427821970633994F);
}

TEST(FillNormalTest, BitsDoNotDependOnHowTheRangeIsCut) {
  std::vector<float> whole(1000);
  FillNormal(kKey, 0, whole);
  std::mt19937_64 rng(20261121);
  for (int trial = 0; trial < 200; ++trial) {
    std::vector<float> parts(whole.size());
    for (std::size_t begin = 0; begin < parts.size();) {
      const std::size_t size = std::min<std::size_t>(rng() % 40 + 1, parts.size() - begin);
      FillNormal(kKey, begin, std::span(parts).subspan(begin, size));
      begin += size;
    }
    for (std::size_t i = 0; i < whole.size(); ++i) {
      ASSERT_EQ(std::bit_cast<std::uint32_t>(parts[i]), std::bit_cast<std::uint32_t>(whole[i]))
          << i;
    }
  }
}

void ExpectTheLibrarysPairs(std::span<const std::uint32_t, kPairsAtOnce> radius_bits,
                            std::span<const std::uint32_t, kPairsAtOnce> angle_bits) {
  std::array<float, 2 * kPairsAtOnce> pairs;
  NormalPairs(radius_bits, angle_bits, pairs);
  for (std::size_t i = 0; i < kPairsAtOnce; ++i) {
    std::array<float, 2> want;
    NormalPair(radius_bits[i], angle_bits[i], want.data());
    for (std::size_t j = 0; j < 2; ++j) {
      ASSERT_EQ(std::bit_cast<std::uint32_t>(pairs[2 * i + j]),
                std::bit_cast<std::uint32_t>(want[j]))
          << std::hex << radius_bits[i] << " " << angle_bits[i];
    }
  }
}

// Everywhere, and close to where a logarithm, a sine or a cosine is zero or changes its formula.
TEST(NormalPairsTest, HaveTheBitsOfTheLibrary) {
  std::mt19937_64 rng(20261124);
  std::array<std::uint32_t, kPairsAtOnce> radius_bits;
  std::array<std::uint32_t, kPairsAtOnce> angle_bits;
  const auto word = [&] { return static_cast<std::uint32_t>(rng()); };
  for (int trial = 0; trial < 8000; ++trial) {
    for (std::size_t i = 0; i < kPairsAtOnce; ++i) {
      radius_bits[i] = word();
      angle_bits[i] = word();
      if (trial % 4 == 1) angle_bits[i] = ((word() % 8) << 29U) + word() % 129 - 64;
      if (trial % 4 == 2) radius_bits[i] = word() % 129 - 64;
      if (trial % 4 == 3) radius_bits[i] = (0xB504F333U >> (word() % 9)) + word() % 129 - 64;
    }
    ExpectTheLibrarysPairs(radius_bits, angle_bits);
  }
}

TEST(FillNormalTest, IsStandardNormal) {
  std::vector<float> out(1 << 20);
  FillNormal(kKey, 0, out);
  double sum = 0;
  double squares = 0;
  double fourths = 0;
  double neighbours = 0;
  double beyond_two = 0;
  for (std::size_t i = 0; i < out.size(); ++i) {
    const double x = out[i];
    sum += x;
    squares += x * x;
    fourths += x * x * x * x;
    neighbours += x * static_cast<double>(out[(i + 1) % out.size()]);
    beyond_two += std::abs(x) > 2 ? 1 : 0;
  }
  const auto count = static_cast<double>(out.size());
  // Five standard deviations of each estimate: sqrt(1, 2, 96, 1, 0.0434) / sqrt(2²⁰).
  EXPECT_NEAR(sum / count, 0, 0.0049);
  EXPECT_NEAR(squares / count, 1, 0.0069);
  EXPECT_NEAR(fourths / count, 3, 0.048);
  EXPECT_NEAR(neighbours / count, 0, 0.0049);
  EXPECT_NEAR(beyond_two / count, 0.0455, 0.00102);
}

TEST(UniformBelowTest, NeverChanges) {
  std::vector<std::uint64_t> small;
  std::vector<std::uint64_t> large;
  for (std::uint64_t p = 0; p < 8; ++p) small.push_back(UniformBelow(kKey, p, 10));
  for (std::uint64_t p = 0; p < 3; ++p)
    large.push_back(UniformBelow(kKey, p, std::uint64_t{3} << 62));
  EXPECT_THAT(small, ElementsAre(5, 5, 0, 2, 5, 5, 4, 2));
  // The first two are drawn twice: a quarter of all draws has no fair place.
  EXPECT_THAT(large, ElementsAre(4079886695955927915U, 7832502193589069267U, 1303429943204202845U));
}

TEST(UniformBelowTest, EveryNumberIsEquallyLikely) {
  constexpr int kDraws = 300'000;
  // Where a product alone would favour some thirds by half: 2⁶⁴ / bound is 4/3.
  constexpr std::uint64_t kBound = std::uint64_t{3} << 62;
  for (const std::uint64_t bound : {std::uint64_t{3}, kBound}) {
    std::array<int, 3> counts{};
    for (std::uint64_t p = 0; p < kDraws; ++p) {
      const std::uint64_t drawn = UniformBelow(kKey, p, bound);
      ASSERT_LT(drawn, bound);
      // Residues: a biased product repeats or skips neighbours, which shows modulo three.
      ++counts[drawn % 3];
    }
    // Five standard deviations of a binomial count.
    for (const int count : counts) EXPECT_NEAR(count, kDraws / 3, 5 * std::sqrt(kDraws * 2.0 / 9));
  }
  EXPECT_EQ(UniformBelow(kKey, 7, 1), 0U);
}

}  // namespace
}  // namespace ckpt::trainer
