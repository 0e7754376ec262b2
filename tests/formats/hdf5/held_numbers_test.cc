#include "formats/hdf5/internal/held_numbers.h"

#include <cstdint>
#include <limits>
#include <string>

#include <gmock/gmock.h>

#include "core/base/endian.h"
#include "core/base/hash.h"
#include "tests/testing/matchers.h"

namespace ckpt::hdf5 {
namespace {

using ckpt::testing::FailsWith;
using ckpt::testing::IsOk;

template <typename T>
std::string DigestOf(T element) {
  Bytes bytes;
  AppendLe(element, bytes);
  return HashHex(HashAlgorithm::kSha256, bytes);
}

TEST(HeldNumbersTest, ComeBackUnderTheirDigests) {
  const HeldNumbers numbers = {{{DType::kInt64, DigestOf(std::int64_t{3})}, 3.0},
                               {{DType::kInt64, DigestOf(std::int64_t{-7})}, -7.0},
                               {{DType::kInt32, DigestOf(std::int32_t{3})}, 3.0},
                               {{DType::kFloat32, DigestOf(0.1F)}, static_cast<double>(0.1F)},
                               {{DType::kFloat64, DigestOf(0.1)}, 0.1},
                               {{DType::kBool, DigestOf(std::uint8_t{1})}, 1.0}};
  const std::string text = EncodeNumbers(numbers);
  EXPECT_THAT(text, ::testing::HasSubstr(R"(["int64",3.0])"));
  const auto back = ParseNumbers(text);
  ASSERT_THAT(back, IsOk());
  EXPECT_EQ(*back, numbers);
}

TEST(HeldNumbersTest, LeavesOutWhatJsonDoesNotHave) {
  const double endless = std::numeric_limits<double>::infinity();
  EXPECT_EQ(EncodeNumbers({{{DType::kFloat64, DigestOf(endless)}, endless}}), "[]");
}

TEST(HeldNumbersTest, RefusesWhatIsNoNumberOfTheDtype) {
  for (const char* text :
       {"", "3", R"([["int64"]])", R"([["int64", "3"]])", R"([["int65", 3]])",
        R"([["int64", 0.5]])", R"([["int64", 9223372036854775808.0]])", R"([["int32", 1e300]])",
        R"([["bool", 2]])", R"([["float32", 1e39]])", R"([["bfloat16", 1]])"}) {
    EXPECT_THAT(ParseNumbers(text), FailsWith(ErrorKind::kBadMetadata)) << text;
  }
  const auto ends = ParseNumbers(R"([["int64", -9223372036854775808.0], ["int32", 2147483647]])");
  ASSERT_THAT(ends, IsOk());
  EXPECT_TRUE(ends->contains({DType::kInt64, DigestOf(std::numeric_limits<std::int64_t>::min())}));
  EXPECT_TRUE(ends->contains({DType::kInt32, DigestOf(std::numeric_limits<std::int32_t>::max())}));
}

}  // namespace
}  // namespace ckpt::hdf5
