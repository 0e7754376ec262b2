#include "formats/dcp/item.h"

#include <algorithm>
#include <random>
#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "core/base/units.h"
#include "core/codec/zstd.h"
#include "tests/testing/matchers.h"

namespace ckpt::dcp {
namespace {

using testing::FailsWith;
using testing::IsOk;

// Between two bytes that belong to nobody.
std::shared_ptr<const ReadableFile> FileOf(ByteSpan item) {
  Bytes content = {std::byte{0xFF}};
  Append(item, content);
  content.push_back(std::byte{0xFF});
  return MakeMemoryFile("f", std::move(content));
}

Result<Bytes> Decode(ByteSpan item, std::string_view encoding, std::uint64_t max_bytes) {
  const auto decoded = DecodeItem(FileOf(item), 1, item.size(), encoding, max_bytes);
  CKPT_RETURN_IF_ERROR(decoded.status());
  EXPECT_EQ(decoded->resident_bytes, decoded->size_bytes);
  Bytes bytes(decoded->size_bytes);
  CKPT_RETURN_IF_ERROR(decoded->file->ReadAt(decoded->offset_bytes, bytes));
  return bytes;
}

Bytes RandomBytes(std::size_t count) {
  std::mt19937_64 rng(3);
  Bytes bytes(count);
  std::ranges::generate(bytes, [&] { return static_cast<std::byte>(rng()); });
  return bytes;
}

TEST(CheckTransformsTest, KnowsVersionOneOfZstd) {
  for (const char* encoding :
       {"torch_save", "torch_save+stream.zstd/1", "torch_save+stream.zstd/1.2",
        "torch_save+stream.zstd/1+stream.zstd/1"}) {
    EXPECT_THAT(CheckTransforms(encoding), IsOk()) << encoding;
  }
  for (const char* encoding :
       {"torch_save+", "torch_save+stream.zstd", "torch_save+stream.zstd/2",
        "torch_save+stream.zstd/10", "torch_save+lz4/1", "torch_save+stream.zstd/1+lz4/1"}) {
    EXPECT_THAT(CheckTransforms(encoding), FailsWith(ErrorKind::kUnsupported)) << encoding;
  }
}

TEST(DecodeItemTest, WithoutTransformsItIsTheFileItself) {
  const auto file = FileOf(AsBytes(std::string_view("item")));
  const auto decoded = DecodeItem(file, 1, 4, "torch_save", 0);
  ASSERT_THAT(decoded, IsOk());
  EXPECT_EQ(decoded->file, file);
  EXPECT_EQ(decoded->offset_bytes, 1U);
  EXPECT_EQ(decoded->size_bytes, 4U);
  EXPECT_EQ(decoded->resident_bytes, 0U);
}

TEST(DecodeItemTest, UndoesWhatWasDoneWhateverItsSize) {
  // More than one block is read at a time.
  for (const std::size_t count : {std::size_t{0}, std::size_t{1}, std::size_t{5} << 19}) {
    const Bytes bytes = RandomBytes(count);
    const Result<Bytes> decoded = Decode(ZstdCompress(bytes, 1), "torch_save+stream.zstd/1", count);
    ASSERT_THAT(decoded, IsOk());
    EXPECT_TRUE(*decoded == bytes) << count;
  }
}

TEST(DecodeItemTest, WhatComesOutIsBounded) {
  const Bytes bytes(1000);
  EXPECT_THAT(Decode(ZstdCompress(bytes, 1), "torch_save+stream.zstd/1", 1000), IsOk());
  EXPECT_THAT(Decode(ZstdCompress(bytes, 1), "torch_save+stream.zstd/1", 999),
              FailsWith(ErrorKind::kResource));
}

// The inner stage's input may be a little larger than what it yields, no more.
TEST(DecodeItemTest, EveryStageIsBounded) {
  const std::string twice = "torch_save+stream.zstd/1+stream.zstd/1";
  const Bytes bytes = RandomBytes(1000);
  const Bytes once = ZstdCompress(bytes, 1);
  ASSERT_GT(once.size(), bytes.size());
  EXPECT_THAT(Decode(ZstdCompress(once, 1), twice, 1000), IsOk());
  const Bytes bomb = ZstdCompress(Bytes(3 * kMiB), 1);
  EXPECT_THAT(Decode(bomb, twice, 1000), FailsWith(ErrorKind::kResource));
}

TEST(DecodeItemTest, DamageIsAnErrorWithItsPlace) {
  const Bytes whole = ZstdCompress(RandomBytes(100), 1);
  const ByteSpan cut = ByteSpan(whole).first(whole.size() - 1);
  struct Case {
    ByteSpan item;
    ErrorKind kind;
  };
  for (const Case& c : {Case{cut, ErrorKind::kTruncated},
                        Case{AsBytes(std::string_view("no frame")), ErrorKind::kBadItem},
                        Case{{}, ErrorKind::kBadItem}}) {
    const Result<Bytes> decoded = Decode(c.item, "torch_save+stream.zstd/1", 1000);
    ASSERT_THAT(decoded, FailsWith(c.kind));
    EXPECT_EQ(decoded.status().first().file, DescribeRange("f", 1, c.item.size()));
  }
}

TEST(DecodeItemTest, AFileThatEndsEarlierIsAnError) {
  const Bytes whole = ZstdCompress(RandomBytes(100), 1);
  EXPECT_THAT(
      DecodeItem(MakeMemoryFile("f", whole), 1, whole.size(), "torch_save+stream.zstd/1", 1000),
      FailsWith(ErrorKind::kTruncated));
}

}  // namespace
}  // namespace ckpt::dcp
