#include "formats/torch_dist/internal/flat_range.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/testing/matchers.h"

namespace ckpt::torch_dist {
namespace {

using testing::FailsWith;
using testing::IsOkAndHolds;

TEST(FlatRangeTest, BoxesHoldExactlyTheRangeInOrder) {
  for (const Dims& shape : {Dims{}, Dims{7}, Dims{3, 5}, Dims{2, 3, 4}, Dims{1, 4, 1, 3}}) {
    const std::int64_t total = NumElements(shape);
    const Dims strides = ContiguousStrides(shape);
    for (std::int64_t begin = 0; begin <= total; ++begin) {
      for (std::int64_t end = begin; end <= total; ++end) {
        std::int64_t at = begin;
        const std::vector<FlatBox> boxes = CutFlatRange(shape, begin, end);
        for (const FlatBox& cut : boxes) {
          EXPECT_EQ(cut.first_elem, at);
          ASSERT_TRUE(CheckInside(cut.box, shape).ok());
          std::int64_t origin = 0;
          for (std::size_t d = 0; d < shape.size(); ++d) origin += cut.box.offsets[d] * strides[d];
          EXPECT_EQ(origin, at);
          // Contiguous: inside the first dim that has more than one index, all others are whole.
          bool is_inner = false;
          for (std::size_t d = 0; d < shape.size(); ++d) {
            if (is_inner) {
              EXPECT_EQ(cut.box.sizes[d], shape[d]);
            }
            is_inner = is_inner || cut.box.sizes[d] != 1;
          }
          at += NumElements(cut.box.sizes);
        }
        EXPECT_EQ(at, end);
        EXPECT_LE(boxes.size(), shape.empty() ? 1 : 2 * shape.size() - 1);
      }
    }
  }
}

TEST(FlatRangeTest, FindsTheShapeOfABlock) {
  EXPECT_THAT(BlockShape(Dims{12, 5}, Dims{2, 1, 30}), IsOkAndHolds(Dims{6, 5}));
  EXPECT_THAT(BlockShape(Dims{20}, Dims{1, 20}), IsOkAndHolds(Dims{20}));
}

TEST(FlatRangeTest, RefusesShapesThatDoNotBelongTogether) {
  for (const Dims& stored : {Dims{2, 30}, Dims{5, 1, 12}, Dims{2, 1, 31}, Dims{0, 1, 30}}) {
    EXPECT_THAT(BlockShape(Dims{12, 5}, stored), FailsWith(ErrorKind::kBadMetadata));
  }
  const std::int64_t huge = std::int64_t{1} << 62;
  EXPECT_THAT(BlockShape(Dims{huge, huge}, Dims{1, 1, 1}), FailsWith(ErrorKind::kResource));
}

}  // namespace
}  // namespace ckpt::torch_dist
