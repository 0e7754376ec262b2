#include "core/tensor/shape.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "core/base/result.h"
#include "tests/testing/matchers.h"

namespace ckpt {
namespace {

using ::testing::ElementsAre;
using testing::IsOkAndHolds;
using ::testing::SizeIs;

TEST(ContiguousStrides, AreThoseOfCOrder) {
  EXPECT_THAT(ContiguousStrides(Dims{2, 3, 4}), ElementsAre(12, 4, 1));
  EXPECT_THAT(ContiguousStrides(Dims{}), ElementsAre());
  EXPECT_THAT(ContiguousStrides(Dims{0, 3}), ElementsAre(3, 1));
}

// Nothing bounds the other sizes of a shape without elements.
TEST(ContiguousStrides, ExistForEveryEmptyShape) {
  const Dims shape = {0, std::int64_t{1} << 40, std::int64_t{1} << 40};
  ASSERT_THAT(CountElements(shape), IsOkAndHolds(0));
  EXPECT_THAT(ContiguousStrides(shape), SizeIs(3));
}

}  // namespace
}  // namespace ckpt
