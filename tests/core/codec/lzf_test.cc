#include "core/codec/lzf.h"

#include <string>
#include <string_view>

#include <gtest/gtest.h>

#include "tests/testing/matchers.h"

namespace ckpt {
namespace {

using testing::FailsWith;
using testing::IsOkAndHolds;

Result<std::string> Decoded(std::string_view block, std::uint64_t limit = 100) {
  CKPT_ASSIGN_OR_RETURN(const Bytes bytes, LzfDecompress(AsBytes(block), limit));
  return std::string(AsText(bytes));
}

TEST(LzfTest, DecodesLiteralsAndCopies) {
  EXPECT_THAT(Decoded(""), IsOkAndHolds(""));
  EXPECT_THAT(Decoded("\2abc"), IsOkAndHolds("abc"));
  // 3 bytes from 3 back; 4 from 1 back, which reads what it writes; 9 + 2 from 2 back.
  EXPECT_THAT(Decoded("\2abc\x20\2"), IsOkAndHolds("abcabc"));
  EXPECT_THAT(Decoded(std::string_view("\0a\x40\0", 4)), IsOkAndHolds("aaaaa"));
  EXPECT_THAT(Decoded("\1ab\xE0\2\1"), IsOkAndHolds("ababababababa"));
}

TEST(LzfTest, RefusesDamage) {
  EXPECT_THAT(Decoded("\2ab"), FailsWith(ErrorKind::kTruncated));
  EXPECT_THAT(Decoded("\2abc\x20"), FailsWith(ErrorKind::kTruncated));
  EXPECT_THAT(Decoded("\2abc\xE0"), FailsWith(ErrorKind::kTruncated));
  EXPECT_THAT(Decoded("\2abc\x20\3"), FailsWith(ErrorKind::kBadItem));
  EXPECT_THAT(Decoded("\2abc", 2), FailsWith(ErrorKind::kResource));
  EXPECT_THAT(Decoded("\2abc\x20\2", 5), FailsWith(ErrorKind::kResource));
}

}  // namespace
}  // namespace ckpt
