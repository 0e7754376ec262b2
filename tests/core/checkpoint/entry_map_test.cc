#include "core/checkpoint/entry_map.h"

#include <limits>

#include <gmock/gmock.h>

#include "tests/testing/matchers.h"

namespace ckpt {
namespace {

// Entries of one file, as (offset, size).
CheckpointIndex IndexOf(const std::vector<std::pair<std::uint64_t, std::uint64_t>>& entries) {
  IndexBuilder builder;
  const FileId file = builder.AddFile("data");
  const EncodingId encoding = builder.AddEncoding("pickle");
  for (const auto& [offset, size] : entries) {
    builder.AddObject({.key = std::to_string(offset),
                       .file = file,
                       .encoding = encoding,
                       .offset_bytes = offset,
                       .size_bytes = size});
  }
  auto index = builder.Build();
  EXPECT_THAT(index, testing::IsOk());
  return std::move(index).value();
}

TEST(EntryMapTest, TellsACutOffFileFromAWrongRange) {
  const EntryMap map(IndexOf({{0, 100}, {128, 72}, {200, 50}}));
  EXPECT_TRUE(map.LooksCutOff(0, 200, 50));   // right behind another
  EXPECT_TRUE(map.LooksCutOff(0, 128, 72));   // at the next aligned place
  EXPECT_TRUE(map.LooksCutOff(0, 0, 100));    // first in the file
  EXPECT_FALSE(map.LooksCutOff(0, 128, 73));  // reaches into the next
  EXPECT_FALSE(map.LooksCutOff(0, 400, 10));  // far from all others
  EXPECT_FALSE(map.LooksCutOff(0, 0, std::numeric_limits<std::uint64_t>::max()));
}

TEST(EntryMapTest, ARangeThatWrapsLooksCutOff) {
  const std::uint64_t huge = std::numeric_limits<std::uint64_t>::max() - 10;
  const EntryMap map(IndexOf({{100, huge}, {89, 11}}));
  EXPECT_TRUE(map.LooksCutOff(0, 100, huge));
  EXPECT_FALSE(map.LooksCutOff(0, 89, 11));
}

}  // namespace
}  // namespace ckpt
