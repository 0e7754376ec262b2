#include "core/plan/as_stored.h"

#include <cstdint>
#include <optional>
#include <set>
#include <vector>

#include <gmock/gmock.h>

#include "core/checkpoint/index.h"
#include "core/layout/affine.h"

namespace ckpt {
namespace {

using ::testing::ElementsAre;
using ::testing::Eq;
using ::testing::IsEmpty;
using ::testing::Optional;

const Dims kShape = {4, 6};

// A source of two tensors of one shape, and a recipe of the first, in two nests.
class TensorAsStoredTest : public ::testing::Test {
 protected:
  TensorAsStoredTest() {
    for (const char* key : {"a", "b"}) {
      builder_.AddTensor(key, DType::kBfloat16, kShape);
      builder_.AddChunk(WholeBox(kShape), builder_.AddFile("f"), builder_.AddEncoding("raw"), 0,
                        NumBytes(kShape, DType::kBfloat16));
    }
    source_ = builder_.Build().value();
    recipe_.source_dtype = DType::kBfloat16;
    for (std::int64_t half = 0; half < 2; ++half) {
      recipe_.nests.push_back(
          {0, {2 * half, 0}, {2 * half, 0}, {{2, 0, 1, 0, 1}, {6, 1, 1, 1, 1}}});
    }
  }
  [[nodiscard]] std::optional<std::uint32_t> Found(const Dims& shape = kShape) const {
    return TensorAsStored(recipe_, shape, source_);
  }

  IndexBuilder builder_;
  CheckpointIndex source_;
  TensorRecipe recipe_;
};

TEST_F(TensorAsStoredTest, IsFoundInHoweverManyNests) { EXPECT_THAT(Found(), Optional(Eq(0U))); }

TEST_F(TensorAsStoredTest, IsNoneWhereRowsChangePlaces) {
  std::swap(recipe_.nests[0].target_origin, recipe_.nests[1].target_origin);
  EXPECT_FALSE(Found());
}

TEST_F(TensorAsStoredTest, IsNoneOfTwoTensors) {
  recipe_.nests[1].source = 1;
  EXPECT_FALSE(Found());
}

TEST_F(TensorAsStoredTest, IsNoneWithZeros) {
  recipe_.nests[1].source = layout::Nest::kZeroFill;
  recipe_.nests[1].source_origin.clear();
  EXPECT_FALSE(Found());
}

TEST_F(TensorAsStoredTest, IsNoneOfAnotherShapeOrDtype) {
  EXPECT_FALSE(Found({6, 4}));
  recipe_.source_dtype = DType::kFloat16;
  EXPECT_FALSE(Found());
}

// Two tensors, each made of a half of `a`, as gate and up are of one matrix.
class TensorsTakenApartTest : public TensorAsStoredTest {
 protected:
  TensorsTakenApartTest() {
    for (std::int64_t half = 0; half < 2; ++half) {
      tensors_.push_back({.key = "half", .dtype = DType::kBfloat16, .shape = {2, 6}});
      recipes_.push_back({.nests = {{0, {0, 0}, {2 * half, 0}, {{2, 0, 1, 0, 1}, {6, 1, 1, 1, 1}}}},
                          .source_dtype = DType::kBfloat16});
    }
  }
  [[nodiscard]] std::set<std::uint32_t> Found() const {
    return TensorsTakenApart(tensors_, recipes_, source_);
  }

  std::vector<TargetTensor> tensors_;
  std::vector<TensorRecipe> recipes_;
};

TEST_F(TensorsTakenApartTest, AreTakenWhole) {
  EXPECT_THAT(Found(), ElementsAre(0U));
  recipes_[1].nests[0].source = 1;
  EXPECT_THAT(Found(), IsEmpty()) << "a half of each";
}

TEST_F(TensorsTakenApartTest, TakeNoElementTwice) {
  recipes_[1].nests[0].source_origin[0] = 1;
  EXPECT_THAT(Found(), IsEmpty());
}

TEST_F(TensorsTakenApartTest, LeaveNothing) {
  recipes_[1].nests[0].loops[1].extent = 5;
  EXPECT_THAT(Found(), IsEmpty());
}

TEST_F(TensorsTakenApartTest, MayBeTransposed) {
  tensors_ = {{.key = "turned", .dtype = DType::kBfloat16, .shape = {6, 4}}};
  recipes_ = {{.nests = {{0, {0, 0}, {0, 0}, {{6, 0, 1, 1, 1}, {4, 1, 1, 0, 1}}}},
               .source_dtype = DType::kBfloat16}};
  EXPECT_THAT(Found(), ElementsAre(0U));
}

// Its digest is known without reading it.
TEST_F(TensorsTakenApartTest, AreNoneThatComeOutAsStored) {
  tensors_.push_back({.key = "whole", .dtype = DType::kBfloat16, .shape = kShape});
  recipes_.push_back(recipe_);
  EXPECT_THAT(Found(), IsEmpty());
}

}  // namespace
}  // namespace ckpt
