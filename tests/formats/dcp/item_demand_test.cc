#include "formats/dcp/item_demand.h"

#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>

#include <gtest/gtest.h>

#include "tests/testing/matchers.h"

namespace ckpt::dcp {
namespace {

using testing::IsOk;

constexpr std::uint64_t kFileBytes = 1000;

// One tensor of `count` chunks, each of these bytes of "f"; and "other", with one of its own.
CheckpointIndex IndexOf(std::size_t count, std::uint64_t offset, std::uint64_t size_bytes) {
  IndexBuilder builder;
  const FileId file = builder.AddFile("f");
  const FileId other = builder.AddFile("other");
  for (std::size_t i = 0; i < count; ++i) {
    builder.AddObject({.key = "o" + std::to_string(i),
                       .file = file,
                       .offset_bytes = offset,
                       .size_bytes = size_bytes});
  }
  builder.AddObject({.key = "p", .file = other, .offset_bytes = 0, .size_bytes = kFileBytes});
  Result<CheckpointIndex> index = builder.Build();
  EXPECT_THAT(index.status(), IsOk());
  return *std::move(index);
}

TEST(ItemDemandTest, LetsSomeEntriesShareBytes) {
  const CheckpointIndex index = IndexOf(64, 0, kFileBytes);
  EXPECT_FALSE(ItemDemand(index).IsExcessive(0, kFileBytes));
}

TEST(ItemDemandTest, FindsTheFileWhoseBytesTooManyShare) {
  const CheckpointIndex index = IndexOf(70, 0, kFileBytes);
  const ItemDemand demand(index);
  EXPECT_TRUE(demand.IsExcessive(0, kFileBytes));
  EXPECT_TRUE(demand.IsExcessive(0, kFileBytes)) << "asked again";
  EXPECT_FALSE(demand.IsExcessive(1, kFileBytes));
}

// What several ranks stored of an object is read, too.
TEST(ItemDemandTest, CountsCopiesOfObjects) {
  IndexBuilder builder;
  const FileId file = builder.AddFile("f");
  const ObjectEntry object = {.key = "o", .file = file, .size_bytes = kFileBytes};
  builder.AddObject(object);
  for (int i = 0; i < 70; ++i) builder.AddObjectCopy(object);
  const CheckpointIndex index = builder.Build().value();
  EXPECT_TRUE(ItemDemand(index).IsExcessive(file, kFileBytes));
}

// Of a file that was cut off, the rest can be read.
TEST(ItemDemandTest, CountsNoEntryBehindTheEndOfTheFile) {
  const CheckpointIndex index = IndexOf(70, 1, kFileBytes);
  EXPECT_FALSE(ItemDemand(index).IsExcessive(0, kFileBytes));
}

}  // namespace
}  // namespace ckpt::dcp
