#include "core/base/crc32c_flip.h"

#include <random>

#include <gmock/gmock.h>

#include "core/base/bytes.h"
#include "core/base/hash.h"
#include "tests/testing/test_seed.h"

namespace ckpt {
namespace {

constexpr std::uint64_t kDefaultSeed = 20;

Bytes RandomBytes(std::size_t size, std::mt19937_64& rng) {
  Bytes bytes(size);
  for (std::byte& b : bytes) b = static_cast<std::byte>(rng());
  return bytes;
}

void Flip(Bytes& bytes, const FlippedBit& at) { bytes[at.offset_bytes] ^= std::byte{1} << at.bit; }

class FlipTest : public ::testing::Test {
 protected:
  FlipTest() : rng_(testing::TestSeed(kDefaultSeed)) {
    RecordProperty("seed", std::to_string(testing::TestSeed(kDefaultSeed)));
    std::printf("replay: CKPT_TEST_SEED=%llu\n",
                static_cast<unsigned long long>(testing::TestSeed(kDefaultSeed)));
  }
  std::mt19937_64 rng_;
};

TEST_F(FlipTest, FindsEveryBitOfShortTexts) {
  for (std::size_t size = 1; size <= 70; ++size) {
    Bytes bytes = RandomBytes(size, rng_);
    const std::uint32_t expected = Crc32c(bytes);
    for (std::uint64_t offset = 0; offset < size; ++offset) {
      for (int bit = 0; bit < 8; ++bit) {
        const FlippedBit at{.offset_bytes = offset, .bit = bit};
        Flip(bytes, at);
        ASSERT_EQ(FindFlippedBit(expected, Crc32c(bytes), size), at);
        Flip(bytes, at);
      }
    }
  }
}

TEST_F(FlipTest, FindsBitsAnywhereInAMebibyte) {
  for (const std::size_t size : {std::size_t{1} << 20, (std::size_t{1} << 20) - 3}) {
    Bytes bytes = RandomBytes(size, rng_);
    const std::uint32_t expected = Crc32c(bytes);
    for (int i = 0; i < 1000; ++i) {
      FlippedBit at{.offset_bytes = rng_() % size, .bit = static_cast<int>(rng_() % 8)};
      if (i == 0) at = {.offset_bytes = 0, .bit = 0};
      if (i == 1) at = {.offset_bytes = size - 1, .bit = 7};
      Flip(bytes, at);
      ASSERT_EQ(FindFlippedBit(expected, Crc32c(bytes), size), at);
      Flip(bytes, at);
    }
  }
}

// The polynomial has the factor x + 1, so sums of an even number of bits are never one bit.
TEST_F(FlipTest, NeverTakesTwoFlipsForOne) {
  Bytes bytes = RandomBytes(100'000, rng_);
  const std::uint32_t expected = Crc32c(bytes);
  for (int i = 0; i < 2000; ++i) {
    const FlippedBit a{.offset_bytes = rng_() % bytes.size(), .bit = static_cast<int>(rng_() % 8)};
    const FlippedBit b{.offset_bytes = rng_() % bytes.size(), .bit = static_cast<int>(rng_() % 8)};
    if (a == b) continue;
    Flip(bytes, a);
    Flip(bytes, b);
    ASSERT_EQ(FindFlippedBit(expected, Crc32c(bytes), bytes.size()), std::nullopt);
    Flip(bytes, a);
    Flip(bytes, b);
  }
}

TEST_F(FlipTest, FindsNothingOutsideTheBytes) {
  Bytes bytes = RandomBytes(64, rng_);
  const std::uint32_t expected = Crc32c(bytes);
  Flip(bytes, {.offset_bytes = 0, .bit = 3});
  // As far from the end as the flip is, a text of one byte less has no bit.
  EXPECT_EQ(FindFlippedBit(expected, Crc32c(bytes), 63), std::nullopt);
  EXPECT_EQ(FindFlippedBit(expected, expected, 64), std::nullopt);
  EXPECT_EQ(FindFlippedBit(1, 2, 0), std::nullopt);
  // The difference of a bit that was not shifted at all.
  EXPECT_EQ(FindFlippedBit(0, 1, 64), std::nullopt);
}

}  // namespace
}  // namespace ckpt
