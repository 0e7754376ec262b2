#include "core/checkpoint/byte_owners.h"

#include <gmock/gmock.h>

#include "tests/testing/matchers.h"

namespace ckpt {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using testing::IsOk;

class ByteOwnersTest : public ::testing::Test {
 protected:
  // data: 10 header bytes; w in two chunks [10, 30) [30, 50); 5 bytes of padding; object o [55,
  // 60); t, which shares w's second chunk; 4 trailing bytes nobody has.
  void SetUp() override {
    IndexBuilder builder;
    const FileId data = builder.AddFile("data");
    const EncodingId raw = builder.AddEncoding("raw");
    builder.AddTensor("w", DType::kUint8, {4, 10});
    builder.AddChunk(Box{{0, 0}, {2, 10}}, data, raw, 10, 20);
    builder.AddChunk(Box{{2, 0}, {2, 10}}, data, raw, 30, 20);
    builder.AddTensor("t", DType::kUint8, {20});
    builder.AddChunk(Box{{0}, {20}}, data, raw, 30, 20);
    builder.AddTensor("empty", DType::kUint8, {0});
    builder.AddChunk(Box{{0}, {0}}, data, raw, 12, 0);
    builder.AddObject(
        {.key = "o", .file = data, .encoding = raw, .offset_bytes = 55, .size_bytes = 5});
    Result<CheckpointIndex> index = builder.Build();
    ASSERT_THAT(index, IsOk());
    index_ = *std::move(index);
    owners_.emplace(index_);
  }

  std::vector<std::string> Keys(std::uint64_t offset, std::uint64_t size) const {
    std::vector<std::string> keys;
    for (const ByteOwner& owner : owners_->Of("data", offset, size)) {
      keys.push_back(std::string(owner.key) + (owner.chunk == nullptr ? " (object)" : ""));
    }
    return keys;
  }

  CheckpointIndex index_;
  std::optional<ByteOwners> owners_;
};

TEST_F(ByteOwnersTest, NamesWhoeverHasTheByte) {
  EXPECT_THAT(Keys(9, 1), IsEmpty());
  EXPECT_THAT(Keys(10, 1), ElementsAre("w"));
  EXPECT_THAT(Keys(29, 1), ElementsAre("w"));
  EXPECT_THAT(Keys(30, 1), ElementsAre("t", "w"));
  EXPECT_THAT(Keys(49, 1), ElementsAre("t", "w"));
  EXPECT_THAT(Keys(50, 5), IsEmpty());
  EXPECT_THAT(Keys(59, 1), ElementsAre("o (object)"));
  EXPECT_THAT(Keys(0, 100), ElementsAre("w", "t", "w", "o (object)"));
}

TEST_F(ByteOwnersTest, GivesTheChunk) {
  const std::vector<ByteOwner> owners = owners_->Of("data", 12, 1);
  ASSERT_EQ(owners.size(), 1U);
  ASSERT_NE(owners[0].chunk, nullptr);
  EXPECT_EQ(index_.box(*owners[0].chunk), (Box{{0, 0}, {2, 10}}));
}

TEST_F(ByteOwnersTest, NamesTheRegionOfBytesWithoutAnOwner) {
  EXPECT_EQ(owners_->RegionOf("data", 0), UnownedRegion::kHeader);
  EXPECT_EQ(owners_->RegionOf("data", 52), UnownedRegion::kBetween);
  EXPECT_EQ(owners_->RegionOf("data", 60), UnownedRegion::kTrailer);
  EXPECT_EQ(owners_->RegionOf("other", 0), UnownedRegion::kFile);
  EXPECT_THAT(owners_->Of("other", 0, 100), IsEmpty());
}

}  // namespace
}  // namespace ckpt
