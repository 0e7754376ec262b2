#include "core/codec/zstd.h"

#include <algorithm>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "core/base/endian.h"
#include "tests/testing/matchers.h"

namespace ckpt {
namespace {

using testing::FailsWith;
using testing::IsOk;

Bytes Pattern(std::size_t size) {
  Bytes bytes(size);
  for (std::size_t i = 0; i < size; ++i) bytes[i] = static_cast<std::byte>(i * i / 7);
  return bytes;
}

TEST(ZstdTest, DecodesWhatItEncoded) {
  const Bytes plain = Pattern(300'000);
  const Result<Bytes> decoded =
      ZstdDecompress(ZstdCompress(plain, 3), {.max_output_bytes = 300'000});
  ASSERT_THAT(decoded, IsOk());
  EXPECT_EQ(*decoded, plain);
}

TEST(ZstdTest, DecodesAllConcatenatedFrames) {
  Bytes frames = ZstdCompress(Pattern(10), 1);
  Append(ByteSpan(ZstdCompress(Pattern(0), 1)), frames);
  Append(ByteSpan(ZstdCompress(Pattern(20), 1)), frames);
  Bytes both = Pattern(10);
  Append(ByteSpan(Pattern(20)), both);
  const Result<Bytes> decoded = ZstdDecompress(frames, {.max_output_bytes = 100});
  ASSERT_THAT(decoded, IsOk());
  EXPECT_EQ(*decoded, both);
}

TEST(ZstdTest, DecodesInputOfOneByteAtATime) {
  const Bytes plain = Pattern(5000);
  const Bytes frame = ZstdCompress(plain, 3);
  ZstdDecoder decoder({.max_output_bytes = 5000});
  Bytes out;
  for (std::size_t i = 0; i < frame.size(); ++i) {
    ASSERT_THAT(decoder.Decode(ByteSpan(frame).subspan(i, 1), out), IsOk());
  }
  EXPECT_THAT(decoder.Finish(), IsOk());
  EXPECT_EQ(out, plain);
}

// Frames without a checksum: the decoder has seen all input long before all output is out.
TEST(ZstdTest, DecodesAllThatTheLastBytesYield) {
  for (const std::size_t num_blocks : {1U, 2U, 9U}) {
    Bytes frame;
    AppendLe(std::uint32_t{0xFD2FB528}, frame);
    AppendLe(std::uint16_t{0x4000}, frame);  // a window of 256 KiB, nothing else
    for (std::size_t block = 1; block <= num_blocks; ++block) {
      // One byte, repeated 128 KiB times.
      const std::uint32_t header = (128U << 10 << 3) | (1U << 1) | (block == num_blocks ? 1U : 0U);
      for (const int shift : {0, 8, 16})
        AppendLe(static_cast<std::uint8_t>(header >> shift), frame);
      frame.push_back(std::byte{'x'});
    }
    const std::size_t size = num_blocks << 17;
    const Result<Bytes> decoded = ZstdDecompress(frame, {.max_output_bytes = size});
    ASSERT_THAT(decoded, IsOk());
    EXPECT_TRUE(*decoded == Bytes(size, std::byte{'x'})) << num_blocks;
  }
}

TEST(ZstdTest, RefusesOutputPastTheLimit) {
  const Bytes bomb = ZstdCompress(Bytes(64 << 20), 3);
  ASSERT_LT(bomb.size(), 100'000u);
  ZstdDecoder decoder({.max_output_bytes = 1000});
  Bytes out;
  EXPECT_THAT(decoder.Decode(bomb, out), FailsWith(ErrorKind::kResource));
  EXPECT_TRUE(out.empty());
  EXPECT_THAT(ZstdDecompress(ZstdCompress(Pattern(11), 3), {.max_output_bytes = 10}),
              FailsWith(ErrorKind::kResource));
  EXPECT_THAT(ZstdDecompress(ZstdCompress(Pattern(10), 3), {.max_output_bytes = 10}), IsOk());
}

TEST(ZstdTest, ReportsAnIncompleteFrame) {
  const Bytes frame = ZstdCompress(Pattern(1000), 3);
  for (const std::size_t cut : {std::size_t{1}, std::size_t{9}, frame.size() - 1}) {
    EXPECT_THAT(
        ZstdDecompress(ByteSpan(frame).first(frame.size() - cut), {.max_output_bytes = 1000}),
        FailsWith(ErrorKind::kTruncated))
        << "cut by " << cut;
  }
}

TEST(ZstdTest, RefusesWhatIsNoFrame) {
  EXPECT_THAT(ZstdDecompress({}, {.max_output_bytes = 10}), FailsWith(ErrorKind::kBadItem));
  EXPECT_THAT(ZstdDecompress(AsBytes("PK\3\4 a zip archive"), {.max_output_bytes = 10}),
              FailsWith(ErrorKind::kBadItem));
  Bytes trailing = ZstdCompress(Pattern(10), 3);
  Append("trailing bytes", trailing);
  EXPECT_THAT(ZstdDecompress(trailing, {.max_output_bytes = 100}), FailsWith(ErrorKind::kBadItem));
}

TEST(ZstdTest, ReportsAFlippedPayloadBit) {
  const Bytes plain = Pattern(1000);
  Bytes frame = ZstdCompress(plain, 3);
  frame[frame.size() - 1] ^= std::byte{1};  // of the content checksum
  EXPECT_THAT(ZstdDecompress(frame, {.max_output_bytes = 1000}), FailsWith(ErrorKind::kChecksum));
}

TEST(ZstdTest, RefusesAWindowPastTheLimit) {
  EXPECT_THAT(ZstdDecompress(ZstdCompress(Bytes(8 << 20), 19),
                             {.max_output_bytes = 8 << 20, .max_window_log = 20}),
              FailsWith(ErrorKind::kResource));
}

// Bytes that compress a little, so that blocks, jobs and literals all occur.
Bytes Weights(std::size_t size) {
  Bytes bytes(size);
  std::uint32_t state = 1;
  for (std::size_t i = 0; i < size; ++i) {
    state = state * 1664525 + 1013904223;
    bytes[i] = static_cast<std::byte>(i % 2 == 0 ? state >> 24 : (state >> 28) + 0x38);
  }
  return bytes;
}

Bytes Encode(ZstdEncoder& encoder, ByteSpan content, std::size_t piece_bytes) {
  Bytes out;
  encoder.Begin(content.size());
  for (std::size_t at = 0; at < content.size(); at += piece_bytes) {
    const std::size_t size = std::min(piece_bytes, content.size() - at);
    EXPECT_THAT(encoder.Encode(content.subspan(at, size), out), IsOk());
  }
  EXPECT_THAT(encoder.Finish(out), IsOk());
  return out;
}

TEST(ZstdEncoderTest, GivesTheSameFrameWhateverThePiecesAndThreads) {
  for (const std::size_t size : {0U, 1U, 1000U, 131'072U, 524'288U, 3'000'001U}) {
    const Bytes content = Weights(size);
    ZstdEncoder first({.level = 3, .threads = 1});
    const Bytes expected = Encode(first, content, content.size() + 1);
    const auto decoded = ZstdDecompress(expected, {.max_output_bytes = size});
    ASSERT_THAT(decoded, IsOk());
    EXPECT_EQ(*decoded, content);
    for (const int threads : {1, 2, 5}) {
      ZstdEncoder encoder({.level = 3, .threads = threads});
      for (const std::size_t piece : {777U, 65'536U, 131'072U, 1'500'000U}) {
        EXPECT_TRUE(Encode(encoder, content, piece) == expected)
            << size << " bytes in pieces of " << piece << " on " << threads << " threads";
      }
    }
  }
}

TEST(ZstdEncoderTest, StartsAgainAfterAnUnfinishedFrame) {
  const Bytes content = Weights(300'000);
  ZstdEncoder encoder({.level = 1, .threads = 2});
  const Bytes expected = Encode(encoder, content, 100'000);
  Bytes abandoned;
  encoder.Begin(5'000'000);
  ASSERT_THAT(encoder.Encode(Weights(2'000'000), abandoned), IsOk());
  EXPECT_TRUE(Encode(encoder, content, 100'000) == expected);
}

TEST(ZstdEncoderTest, HoldsTheCallerToTheAnnouncedSize) {
  Bytes out;
  ZstdEncoder encoder({.level = 3, .threads = 1});
  encoder.Begin(10);
  ASSERT_THAT(encoder.Encode(Weights(9), out), IsOk());
  EXPECT_THAT(encoder.Finish(out), FailsWith(ErrorKind::kInternal));
}

}  // namespace
}  // namespace ckpt
