#include "core/plan/round_trip.h"

#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

#include <gmock/gmock.h>

#include "core/checkpoint/index.h"
#include "core/layout/affine.h"

namespace ckpt {
namespace {

using ::testing::Eq;
using ::testing::Optional;

constexpr std::int64_t kExperts = 3;
constexpr std::int64_t kIn = 5;
constexpr std::int64_t kOut = 4;

layout::Nest Interleaved(std::int64_t half, std::int64_t column_in_target) {
  return {0, {column_in_target, 0}, {0, 0, half}, {{kOut, 0, 1, 2, 2}, {kIn, 1, 1, 1, 1}}};
}

// The source has the experts in one tensor, transposed, the columns of gate and up by turns; the
// target has a matrix for each, gate above up.
class RoundTripTest : public ::testing::Test {
 protected:
  RoundTripTest() {
    const Dims shape = {kExperts, kIn, 2 * kOut};
    for (const DType dtype : {DType::kBfloat16, DType::kFloat16}) {
      builder_.AddTensor(dtype == DType::kBfloat16 ? "a" : "b", dtype, shape);
      builder_.AddChunk(WholeBox(shape), builder_.AddFile("f"), builder_.AddEncoding("raw"), 0,
                        NumBytes(shape, dtype));
    }
    source_ = builder_.Build().value();
    read_.source_dtype = DType::kBfloat16;
    for (std::int64_t expert = 0; expert < kExperts; ++expert) {
      TensorRecipe made = {.nests = {}, .source_dtype = DType::kBfloat16};
      for (std::int64_t half = 0; half < 2; ++half) {
        made.nests.push_back(Interleaved(half, half * kOut));
        made.nests.back().source_origin[0] = expert;
        // The same elements, read back.
        read_.nests.push_back({static_cast<std::uint32_t>(expert),
                               {expert, 0, half},
                               {half * kOut, 0},
                               {{kIn, 1, 1, 1, 1}, {kOut, 2, 2, 0, 1}}});
      }
      made_.push_back(std::move(made));
    }
  }
  [[nodiscard]] std::optional<std::uint32_t> GivenBack(const Dims& shape = {kExperts, kIn,
                                                                            2 * kOut}) const {
    const auto through = ThroughTarget(
        read_, [&](std::uint32_t at) { return made_[at].nests.empty() ? nullptr : &made_[at]; });
    return through ? TensorAsStored(*through, shape, source_) : std::nullopt;
  }

  IndexBuilder builder_;
  CheckpointIndex source_;
  std::vector<TensorRecipe> made_;  // by position in the target
  TensorRecipe read_;
};

TEST_F(RoundTripTest, FindsTheTensorThatComesBack) { EXPECT_THAT(GivenBack(), Optional(Eq(0U))); }

TEST_F(RoundTripTest, SeesThatOnePartWentElsewhere) {
  std::swap(made_[1].nests[0].target_origin, made_[1].nests[1].target_origin);
  EXPECT_FALSE(GivenBack());
}

TEST_F(RoundTripTest, SeesThatOneExpertIsReadFromAnother) {
  std::swap(read_.nests[0].source, read_.nests[2].source);
  EXPECT_FALSE(GivenBack());
}

TEST_F(RoundTripTest, SeesThatOnePartComesFromAnotherTensor) {
  made_[2].nests[1].source = 1;
  EXPECT_FALSE(GivenBack());
}

TEST_F(RoundTripTest, SeesZeros) {
  layout::Nest& zeros = read_.nests.back();
  zeros.source = layout::Nest::kZeroFill;
  zeros.source_origin.clear();
  EXPECT_FALSE(GivenBack());
}

TEST_F(RoundTripTest, SaysNothingOfTensorsThatWereCast) {
  made_[1].nests.clear();
  EXPECT_FALSE(GivenBack());
}

TEST_F(RoundTripTest, SaysNothingOfValuesInAnotherDtype) {
  made_[1].source_dtype = DType::kFloat32;
  EXPECT_FALSE(GivenBack());
}

TEST_F(RoundTripTest, TellsShapesOfEqualSizeApart) {
  EXPECT_FALSE(GivenBack({kExperts, 2 * kOut, kIn}));
}

// Rows that pad a tensor in the target are not read back.
TEST_F(RoundTripTest, LooksPastPadding) {
  const Dims shape = {kExperts, kIn, 2 * kOut};
  Dims padded = shape;
  padded[0] += 2;
  layout::Nest zeros = layout::IdentityNest(layout::Nest::kZeroFill, Dims{2, kIn, 2 * kOut});
  zeros.target_origin[0] = kExperts;
  zeros.source_origin.clear();
  made_ = {{.nests = {layout::IdentityNest(0, shape), zeros}, .source_dtype = DType::kBfloat16}};
  read_.nests = {layout::IdentityNest(0, shape)};
  EXPECT_THAT(GivenBack(), Optional(Eq(0U)));
}

}  // namespace
}  // namespace ckpt
