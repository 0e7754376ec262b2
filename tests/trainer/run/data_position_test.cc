// What is stored of a run's data tells them from others.
#include "trainer/run/data_position.h"

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/testing/matchers.h"
#include "trainer/data/sequence_source.h"

namespace ckpt::train {
namespace {

using testing::IsOk;
using ::testing::StartsWith;

// Sequences of one token each; a negative token cannot be read.
class Tokens final : public trainer::SequenceSource {
 public:
  explicit Tokens(std::vector<std::int32_t> tokens) : tokens_(std::move(tokens)) {}

  std::int64_t seq_length() const override { return 1; }
  std::int64_t num_samples() const override { return static_cast<std::int64_t>(tokens_.size()); }
  trainer::SourceFacts facts() const override { return {.identity = "some tokens"}; }
  Result<trainer::Sequence> Read(std::int64_t global_sample) const override {
    const std::int32_t token = tokens_.at(static_cast<std::size_t>(global_sample));
    if (token < 0) return Error(ErrorKind::kOutOfRange, "no token");
    return trainer::Sequence{.tokens = {token}, .labels = {token}};
  }

 private:
  std::vector<std::int32_t> tokens_;
};

std::string IdentityOf(std::vector<std::int32_t> tokens) {
  RunConfig run;
  EXPECT_THAT(PlaceInData(Tokens(std::move(tokens)), {}, run), IsOk());
  return run.data_identity;
}

TEST(DataPositionTest, DataOfTheSameSizesAreToldApartByTheirContent) {
  EXPECT_THAT(IdentityOf({1, 2, 3}), StartsWith("some tokens, content "));
  EXPECT_EQ(IdentityOf({1, 2, 3}), IdentityOf({1, 2, 3}));
  for (const std::vector<std::int32_t>& other :
       {std::vector{4, 2, 3}, std::vector{1, 4, 3}, std::vector{1, 2, 4}, std::vector{2, 1, 3}}) {
    EXPECT_FALSE(IsSameData(IdentityOf({1, 2, 3}), IdentityOf(other)));
  }
  // The first and the last of many samples are among those that are looked at.
  std::vector<std::int32_t> many(1000, 7);
  const std::string before = IdentityOf(many);
  for (const std::size_t at : {std::size_t{0}, std::size_t{999}}) {
    std::vector<std::int32_t> changed = many;
    changed[at] = 8;
    EXPECT_NE(IdentityOf(changed), before) << at;
  }
  EXPECT_NE(IdentityOf({5}), IdentityOf({6}));
}

TEST(DataPositionTest, ASampleThatCannotBeReadIsNoErrorYet) {
  EXPECT_THAT(IdentityOf({1, -1, 3}), StartsWith("some tokens, content "));
}

TEST(DataPositionTest, WhatEarlierVersionsStoredIsComparedBySizesAndOrder) {
  EXPECT_TRUE(IsSameData("some tokens", IdentityOf({1, 2, 3})));
  EXPECT_FALSE(IsSameData("more tokens", IdentityOf({1, 2, 3})));
  EXPECT_FALSE(IsSameData("some tokens, content 00000000", IdentityOf({1, 2, 3})));
}

}  // namespace
}  // namespace ckpt::train
