#include "core/base/hash.h"

#include <string>

#include <gmock/gmock.h>

namespace ckpt {
namespace {

// Check values of the CRC catalogue, of FIPS 180-4, and of the xxhsum tool.
TEST(Hash, MatchesKnownVectors) {
  EXPECT_EQ(Crc32(AsBytes("123456789")), 0xCBF43926U);
  EXPECT_EQ(Crc32c(AsBytes("123456789")), 0xE3069283U);
  EXPECT_EQ(HashHex(HashAlgorithm::kSha256, AsBytes("abc")),
            "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
  EXPECT_EQ(HashHex(HashAlgorithm::kXxh3, {}), "99aa06d3014798d86001c324468d497f");
}

// Of more bytes than the widest vectors take at once; the value is xxhash's without them.
TEST(Hash, MatchesAKnownVectorOfManyBytes) {
  std::string text;
  for (int i = 0; i < 100'000; ++i) text += static_cast<char>(i * 7 + i / 251);
  EXPECT_EQ(HashHex(HashAlgorithm::kXxh3, AsBytes(text)), "faa51cdf3b1485174e16d63e05fac6ed");
}

TEST(Hash, OfPiecesEqualsHashOfTheWhole) {
  std::string text;
  for (int i = 0; i < 5000; ++i) text += static_cast<char>(i * 31);
  for (const HashAlgorithm algorithm : {HashAlgorithm::kXxh3, HashAlgorithm::kSha256}) {
    Hasher hasher(algorithm);
    for (std::size_t at = 0; at < text.size(); at += 37) {
      hasher.Update(AsBytes(std::string_view(text).substr(at, 37)));
    }
    EXPECT_EQ(hasher.Finish(), HashHex(algorithm, AsBytes(text)));
  }
  const std::string_view all = text;
  EXPECT_EQ(Crc32(AsBytes(all.substr(99)), Crc32(AsBytes(all.substr(0, 99)))), Crc32(AsBytes(all)));
  EXPECT_EQ(Crc32c(AsBytes(all.substr(99)), Crc32c(AsBytes(all.substr(0, 99)))),
            Crc32c(AsBytes(all)));
}

TEST(CrcConcat, EqualsTheChecksumOfTheConcatenation) {
  std::string text;
  for (int i = 0; i < 3000; ++i) text += static_cast<char>(i * i);
  const std::string_view all = text;
  for (std::size_t cut = 0; cut <= all.size(); cut += 250) {
    const std::string_view a = all.substr(0, cut);
    const std::string_view b = all.substr(cut);
    EXPECT_EQ(Crc32cConcat(Crc32c(AsBytes(a)), Crc32c(AsBytes(b)), b.size()), Crc32c(AsBytes(all)))
        << cut;
    EXPECT_EQ(Crc32Concat(Crc32(AsBytes(a)), Crc32(AsBytes(b)), b.size()), Crc32(AsBytes(all)))
        << cut;
    EXPECT_EQ(Crc32cWithoutEnd(Crc32c(AsBytes(all)), Crc32c(AsBytes(b)), b.size()),
              Crc32c(AsBytes(a)))
        << cut;
  }
}

// Longer than the period of the polynomial: no bytes have to be there for it.
TEST(CrcConcat, TakesAwayWhatItAppended) {
  for (const std::uint64_t length : {std::uint64_t{1} << 20, (std::uint64_t{1} << 31) - 1,
                                     std::uint64_t{1} << 31, std::uint64_t{1} << 40}) {
    const std::uint32_t all = Crc32cConcat(0x12345678, 0x9ABCDEF0, length);
    EXPECT_EQ(Crc32cWithoutEnd(all, 0x9ABCDEF0, length), 0x12345678U) << length;
  }
}

}  // namespace
}  // namespace ckpt
