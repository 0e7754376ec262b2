#include "core/codec/zlib.h"

#include <zlib.h>

#include <gtest/gtest.h>

#include "tests/testing/matchers.h"

namespace ckpt {
namespace {

using testing::FailsWith;
using testing::IsOkAndHolds;

Bytes Plain(std::size_t size) {
  Bytes bytes(size);
  for (std::size_t i = 0; i < size; ++i) bytes[i] = static_cast<std::byte>(i * i / 7);
  return bytes;
}

Bytes Compressed(const Bytes& plain) {
  uLongf size = compressBound(plain.size());
  Bytes out(size);
  EXPECT_EQ(compress(reinterpret_cast<Bytef*>(out.data()), &size,
                     reinterpret_cast<const Bytef*>(plain.data()), plain.size()),
            Z_OK);
  out.resize(size);
  return out;
}

TEST(ZlibTest, DecodesWhatZlibEncoded) {
  for (const std::size_t size : {0U, 1U, 65536U, 300000U}) {
    EXPECT_THAT(ZlibDecompress(Compressed(Plain(size)), size), IsOkAndHolds(Plain(size)));
  }
  Bytes more = Compressed(Plain(10));
  more.push_back(std::byte{7});
  EXPECT_THAT(ZlibDecompress(more, 10), IsOkAndHolds(Plain(10)));
}

TEST(ZlibTest, RefusesDamage) {
  const Bytes whole = Compressed(Plain(1000));
  EXPECT_THAT(ZlibDecompress(whole, 999), FailsWith(ErrorKind::kResource));
  for (const std::size_t size : {std::size_t{0}, std::size_t{1}, whole.size() - 1}) {
    EXPECT_THAT(ZlibDecompress(ByteSpan(whole).first(size), 1000), FailsWith(ErrorKind::kTruncated))
        << size;
  }
  Bytes other = whole;
  other.back() ^= std::byte{1};
  EXPECT_THAT(ZlibDecompress(other, 1000), FailsWith(ErrorKind::kChecksum));
  other = whole;
  other.front() ^= std::byte{1};
  EXPECT_THAT(ZlibDecompress(other, 1000), FailsWith(ErrorKind::kBadItem));
}

}  // namespace
}  // namespace ckpt
