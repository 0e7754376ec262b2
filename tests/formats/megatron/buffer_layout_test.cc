#include "formats/megatron/buffer_layout.h"

#include <gmock/gmock.h>

namespace ckpt::megatron {
namespace {

using ::testing::ElementsAre;

TEST(BufferLayoutTest, TheLastParameterComesFirstAndEachIsAligned) {
  const std::vector<InBuffer> parameters = {{.elems = 10}, {.elems = 64}, {.elems = 65}};
  const BufferLayout layout = LayOutBuffer(parameters, std::nullopt);
  EXPECT_THAT(layout.begins, ElementsAre(192, 128, 0));
  EXPECT_EQ(layout.elems, 202);
}

TEST(BufferLayoutTest, ABucketThatIsFullEndsWithoutRoomBehind) {
  const std::vector<InBuffer> parameters = {{.elems = 7}, {.elems = 10}, {.elems = 20}};
  const BufferLayout layout = LayOutBuffer(parameters, 20);
  EXPECT_THAT(layout.begins, ElementsAre(84, 20, 0));
  EXPECT_EQ(layout.elems, 91);
  EXPECT_THAT(layout.bucket_elems, ElementsAre(20, 64 + 7));
  EXPECT_THAT(LayOutBuffer(parameters, 1).begins, ElementsAre(30, 20, 0));
}

TEST(BufferLayoutTest, ASharedParameterHasABucketOfItsOwn) {
  const std::vector<InBuffer> parameters = {
      {.elems = 5}, {.elems = 7, .has_own_bucket = true}, {.elems = 10}};
  const BufferLayout layout = LayOutBuffer(parameters, std::nullopt);
  // The bucket before it ends at a multiple, too.
  EXPECT_THAT(layout.begins, ElementsAre(71, 64, 0));
  EXPECT_EQ(layout.elems, 76);
  EXPECT_THAT(layout.bucket_elems, ElementsAre(64, 7, 5));
}

TEST(BufferLayoutTest, BucketsEndWhereParametersDo) {
  const std::vector<InBuffer> parameters = {{.elems = 7}, {.elems = 10}, {.elems = 20}};
  const auto layout = LayOutBuckets(parameters, std::vector<std::int64_t>{30, 7});
  ASSERT_TRUE(layout);
  EXPECT_THAT(layout->begins, ElementsAre(0, 20, 0));
  EXPECT_THAT(layout->bucket_of, ElementsAre(1, 0, 0));
  for (const std::vector<std::int64_t>& elems : std::vector<std::vector<std::int64_t>>{
           {}, {37, 1}, {30}, {30, 6}, {30, 8}, {25, 12}, {20, 10, 7, 1}}) {
    EXPECT_FALSE(LayOutBuckets(parameters, elems));
  }
}

TEST(BufferLayoutTest, RanksHaveEqualPartsOfABucketInMemory) {
  EXPECT_EQ(PaddedBucketElems(256, 2, false), 256);
  EXPECT_EQ(PaddedBucketElems(257, 2, false), 384);
  EXPECT_EQ(PaddedBucketElems(257, 3, false), 384);
  EXPECT_EQ(PaddedBucketElems(385, 3, false), 768);
  EXPECT_EQ(PaddedBucketElems(385, 3, true), 3 << 16);
}

TEST(BufferLayoutTest, ManyRanksHaveLargerBuckets) {
  EXPECT_EQ(UsualBucketElems(1), 40'000'000);
  EXPECT_EQ(UsualBucketElems(41), 41'000'000);
}

TEST(BufferLayoutTest, NothingTakesNoRoom) { EXPECT_EQ(LayOutBuffer({}, 20).elems, 0); }

}  // namespace
}  // namespace ckpt::megatron
