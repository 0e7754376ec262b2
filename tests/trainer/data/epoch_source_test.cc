#include "trainer/data/epoch_source.h"

#include <algorithm>
#include <set>
#include <vector>

#include <gmock/gmock.h>

#include "tests/testing/matchers.h"

namespace ckpt::trainer {
namespace {

using ckpt::testing::FailsWith;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

// Sample i holds the number i; the last one cannot be read.
class Numbered final : public SampleSet {
 public:
  explicit Numbered(std::int64_t num_samples, bool last_fails = false)
      : num_samples_(num_samples), last_fails_(last_fails) {}
  std::int64_t seq_length() const override { return 1; }
  std::int64_t num_samples() const override { return num_samples_; }
  Result<Sequence> ReadSample(std::int64_t sample) const override {
    if (last_fails_ && sample == num_samples_ - 1) return Error(ErrorKind::kIo, "no");
    return Sequence{.tokens = {static_cast<std::int32_t>(sample)}, .labels = {kNoLabel}};
  }

 private:
  std::int64_t num_samples_;
  bool last_fails_;
};

std::vector<std::int32_t> Visited(const SequenceSource& source, std::int64_t begin,
                                  std::int64_t end) {
  std::vector<std::int32_t> visited;
  for (std::int64_t g = begin; g < end; ++g) visited.push_back(source.Read(g)->tokens[0]);
  return visited;
}

TEST(EpochSourceTest, EveryEpochVisitsEverySampleOnceInAnOrderOfItsOwn) {
  const auto source = MakeEpochSource(std::make_shared<Numbered>(101), {.seed = 7});
  std::set<std::vector<std::int32_t>> orders;
  for (std::int64_t epoch = 0; epoch < 20; ++epoch) {
    std::vector<std::int32_t> visited = Visited(*source, epoch * 101, (epoch + 1) * 101);
    orders.insert(visited);
    std::ranges::sort(visited);
    for (std::int32_t i = 0; i < 101; ++i)
      ASSERT_EQ(visited[static_cast<std::size_t>(i)], i) << epoch;
  }
  EXPECT_EQ(orders.size(), 20U);
}

TEST(EpochSourceTest, OrderIsAFunctionOfSeedAndNumber) {
  const auto source = MakeEpochSource(std::make_shared<Numbered>(64), {.seed = 7});
  const auto again = MakeEpochSource(std::make_shared<Numbered>(64), {.seed = 7});
  const auto other = MakeEpochSource(std::make_shared<Numbered>(64), {.seed = 8});
  // Backwards, so that no order of reading could matter.
  std::vector<std::int32_t> backwards;
  for (std::int64_t g = 199; g >= 0; --g) backwards.push_back(again->Read(g)->tokens[0]);
  std::ranges::reverse(backwards);
  EXPECT_EQ(Visited(*source, 0, 200), backwards);
  EXPECT_NE(Visited(*source, 0, 64), Visited(*other, 0, 64));
}

TEST(EpochSourceTest, WithoutShuffleEpochsRepeatTheNumbers) {
  const auto source = MakeEpochSource(std::make_shared<Numbered>(3), {.shuffle = false});
  EXPECT_THAT(Visited(*source, 0, 7), ElementsAre(0, 1, 2, 0, 1, 2, 0));
}

// What makes a resumed run see the data of the run before it. Never changes.
TEST(EpochSourceTest, SeedMeansTheSameOrderForEver) {
  const auto source = MakeEpochSource(std::make_shared<Numbered>(8), {.seed = 1234});
  EXPECT_THAT(Visited(*source, 0, 16), ElementsAre(6, 0, 4, 3, 7, 1, 2, 5, 4, 6, 0, 5, 1, 3, 2, 7));
}

TEST(OneEpochTest, WhatFillsTheLastBatchUpTakesPartInNothing) {
  const auto epoch = OneEpochOf(MakeEpochSource(std::make_shared<Numbered>(3), {.shuffle = false}));
  EXPECT_THAT(epoch->Read(2)->positions, ElementsAre(0));
  EXPECT_THAT(epoch->Read(3)->positions, ElementsAre(kPaddingPosition));
  EXPECT_THAT(epoch->Read(3)->labels, ElementsAre(kNoLabel));
}

TEST(EpochSourceTest, ErrorsNameTheSample) {
  const auto source = MakeEpochSource(std::make_shared<Numbered>(3, true), {.shuffle = false});
  const Result<Sequence> failed = source->Read(5);
  ASSERT_THAT(failed, FailsWith(ErrorKind::kIo));
  EXPECT_THAT(failed.status().ToString(), HasSubstr("global sample 5 (sample 2 of epoch 1)"));
}

}  // namespace
}  // namespace ckpt::trainer
