#include "core/tensor/box.h"

#include <random>

#include <gmock/gmock.h>

#include "tests/testing/matchers.h"
#include "tests/testing/test_seed.h"

namespace ckpt {
namespace {

using testing::FailsWith;
using testing::IsOk;

// How many boxes hold each element, C order.
std::vector<int> CountHolders(const Dims& shape, const std::vector<Box>& boxes) {
  std::vector<int> holders(static_cast<std::size_t>(NumElements(shape)), 0);
  Dims at(shape.size(), 0);
  for (int& count : holders) {
    for (const Box& box : boxes) {
      bool inside = true;
      for (std::size_t d = 0; d < shape.size(); ++d) {
        inside = inside && at[d] >= box.offsets[d] && at[d] < box.offsets[d] + box.sizes[d];
      }
      count += inside ? 1 : 0;
    }
    for (std::size_t d = shape.size(); d-- > 0 && ++at[d] == shape[d];) at[d] = 0;
  }
  return holders;
}

std::vector<Box> WithoutDuplicates(const std::vector<Box>& boxes) {
  std::vector<Box> distinct;
  for (const Box& box : boxes) {
    if (std::find(distinct.begin(), distinct.end(), box) == distinct.end()) distinct.push_back(box);
  }
  return distinct;
}

// Compares the proof with counting every element.
void ExpectProofMatchesCount(const Dims& shape, const std::vector<Box>& boxes) {
  const std::vector<Box> distinct = WithoutDuplicates(boxes);
  const std::vector<int> holders = CountHolders(shape, distinct);
  const bool has_hole = std::count(holders.begin(), holders.end(), 0) != 0;
  const bool has_overlap =
      std::any_of(holders.begin(), holders.end(), [](int count) { return count > 1; });
  const CoverProof proof = ProveCover(shape, boxes);
  ASSERT_FALSE(proof.undecided);
  ASSERT_EQ(proof.missing.has_value(), has_hole);
  ASSERT_EQ(proof.overlap.has_value(), has_overlap);
  if (proof.missing) {
    ASSERT_FALSE(IsEmpty(*proof.missing));
    ASSERT_THAT(CheckInside(*proof.missing, shape), IsOk());
    for (const Box& box : distinct) {
      ASSERT_EQ(Intersect(*proof.missing, box), std::nullopt) << FormatBox(*proof.missing);
    }
  }
  if (proof.overlap) {
    ASSERT_NE(proof.overlap->first, proof.overlap->second);
    ASSERT_NE(Intersect(proof.overlap->first, proof.overlap->second), std::nullopt);
  }
}

constexpr std::uint64_t kDefaultSeed = 20261121;

std::int64_t Random(std::mt19937_64& rng, std::int64_t lo, std::int64_t hi) {
  return std::uniform_int_distribution<std::int64_t>(lo, hi)(rng);
}

// Cuts `box` in two at a random place, again and again.
void Split(const Box& box, int depth, std::mt19937_64& rng, std::vector<Box>& out) {
  const auto dim =
      static_cast<std::size_t>(Random(rng, 0, static_cast<std::int64_t>(box.sizes.size()) - 1));
  if (depth == 0 || box.sizes[dim] < 2) {
    out.push_back(box);
    return;
  }
  const std::int64_t cut = Random(rng, 1, box.sizes[dim] - 1);
  Box low = box;
  Box high = box;
  low.sizes[dim] = cut;
  high.offsets[dim] += cut;
  high.sizes[dim] -= cut;
  Split(low, depth - 1, rng, out);
  Split(high, depth - 1, rng, out);
}

TEST(ProveCover, AgreesWithCountingOnRandomTilings) {
  const std::uint64_t seed = testing::TestSeed(kDefaultSeed);
  SCOPED_TRACE(::testing::Message() << "replay: CKPT_TEST_SEED=" << seed);
  std::mt19937_64 rng(seed);
  for (int round = 0; round < 3000; ++round) {
    Dims shape;
    for (std::int64_t d = Random(rng, 1, 4); d > 0; --d) shape.push_back(Random(rng, 1, 6));
    std::vector<Box> boxes;
    Split(WholeBox(shape), static_cast<int>(Random(rng, 0, 4)), rng, boxes);
    // Sometimes damaged: a box lost, moved by one, or listed twice.
    const std::int64_t damage = Random(rng, 0, 3);
    Box& victim = boxes[static_cast<std::size_t>(
        Random(rng, 0, static_cast<std::int64_t>(boxes.size()) - 1))];
    if (damage == 1) victim.sizes[0] -= 1;
    if (damage == 2 && victim.offsets[0] > 0) victim.offsets[0] -= 1;
    if (damage == 3) boxes.push_back(Box(victim));
    std::shuffle(boxes.begin(), boxes.end(), rng);
    ExpectProofMatchesCount(shape, boxes);
    if (HasFatalFailure()) return;
  }
}

TEST(ProveCover, AgreesWithCountingOnRandomBoxes) {
  const std::uint64_t seed = testing::TestSeed(kDefaultSeed);
  SCOPED_TRACE(::testing::Message() << "replay: CKPT_TEST_SEED=" << seed);
  std::mt19937_64 rng(seed);
  for (int round = 0; round < 3000; ++round) {
    Dims shape;
    for (std::int64_t d = Random(rng, 0, 3); d > 0; --d) shape.push_back(Random(rng, 0, 5));
    std::vector<Box> boxes(static_cast<std::size_t>(Random(rng, 0, 7)));
    for (Box& box : boxes) {
      for (const std::int64_t dim : shape) {
        box.offsets.push_back(Random(rng, 0, dim));
        box.sizes.push_back(Random(rng, 0, dim - box.offsets.back()));
      }
    }
    ExpectProofMatchesCount(shape, boxes);
    if (HasFatalFailure()) return;
  }
}

TEST(ProveCover, AcceptsAPinwheelThatNoCutSeparates) {
  const std::vector<Box> boxes = {
      {{0, 0}, {1, 2}}, {{0, 2}, {2, 1}}, {{2, 1}, {1, 2}}, {{1, 0}, {2, 1}}, {{1, 1}, {1, 1}}};
  EXPECT_TRUE(ProveCover(Dims{3, 3}, boxes).exact());
}

TEST(ProveCover, FindsTheHoleInAPinwheel) {
  const std::vector<Box> boxes = {
      {{0, 0}, {1, 2}}, {{0, 2}, {2, 1}}, {{2, 1}, {1, 2}}, {{1, 0}, {2, 1}}};
  const CoverProof proof = ProveCover(Dims{3, 3}, boxes);
  EXPECT_EQ(proof.missing, (Box{{1, 1}, {1, 1}}));
  EXPECT_EQ(proof.overlap, std::nullopt);
}

TEST(ProveCover, EqualVolumesDoNotHideAnOverlap) {
  const CoverProof proof = ProveCover(Dims{6}, std::vector<Box>{{{0}, {3}}, {{2}, {3}}});
  EXPECT_TRUE(proof.overlap);
  EXPECT_EQ(proof.missing, (Box{{5}, {1}}));
}

TEST(ProveCover, CountsReplicasAsDuplicatesNotAsOverlap) {
  const CoverProof proof = ProveCover(Dims{4}, std::vector<Box>{{{0}, {4}}, {{0}, {4}}});
  EXPECT_TRUE(proof.exact());
  EXPECT_EQ(proof.duplicates, 1U);
}

TEST(ProveCover, AScalarNeedsOneBox) {
  EXPECT_TRUE(ProveCover(Dims{}, std::vector<Box>{Box{}}).exact());
  EXPECT_TRUE(ProveCover(Dims{}, std::vector<Box>{}).missing.has_value());
}

TEST(ProveCover, AnEmptyTensorNeedsNone) {
  EXPECT_TRUE(ProveCover(Dims{3, 0}, std::vector<Box>{}).exact());
  EXPECT_TRUE(ProveCover(Dims{3, 0}, std::vector<Box>{{{0, 0}, {3, 0}}}).exact());
}

TEST(ProveCover, EndsOnManyBoxesThatAllOverlap) {
  std::vector<Box> boxes;
  for (std::int64_t i = 0; i < 20000; ++i) boxes.push_back({{i, 0}, {20000, 1 + i % 7}});
  EXPECT_TRUE(ProveCover(Dims{40000, 10}, boxes).overlap.has_value());
}

// Every box is peeled off by a cut in the other dim than the one before: the search would recurse
// once a box.
TEST(ProveCover, EndsOnASpiral) {
  std::vector<Box> boxes;
  Box rest{{0, 0}, {200000, 200000}};
  for (int i = 0; i < 100000; ++i) {
    const std::size_t dim = static_cast<std::size_t>(i % 2);
    Box strip = rest;
    strip.sizes[dim] = 1;
    boxes.push_back(strip);
    rest.offsets[dim] += 1;
    rest.sizes[dim] -= 1;
  }
  boxes.push_back(rest);
  const CoverProof proof = ProveCover(Dims{200000, 200000}, boxes);
  EXPECT_FALSE(proof.overlap);
  EXPECT_FALSE(proof.missing);
}

TEST(CheckInside, RefusesWhatLeavesTheTensor) {
  EXPECT_THAT(CheckInside(Box{{1}, {2}}, Dims{3}), IsOk());
  EXPECT_THAT(CheckInside(Box{{2}, {2}}, Dims{3}), FailsWith(ErrorKind::kOutOfRange));
  EXPECT_THAT(CheckInside(Box{{-1}, {2}}, Dims{3}), FailsWith(ErrorKind::kOutOfRange));
  EXPECT_THAT(CheckInside(Box{{INT64_MAX}, {2}}, Dims{3}), FailsWith(ErrorKind::kOutOfRange));
  EXPECT_THAT(CheckInside(Box{{0}, {-1}}, Dims{3}), FailsWith(ErrorKind::kBadMetadata));
  EXPECT_THAT(CheckInside(Box{{0, 0}, {1, 1}}, Dims{3}), FailsWith(ErrorKind::kBadMetadata));
}

TEST(FormatBox, PrintsRangesAsPythonSlices) {
  EXPECT_EQ(FormatBox(Box{{0, 3}, {2, 2}}), "[0:2, 3:5]");
}

TEST(FormatBox, PrintsBoxesThatAreWrong) {
  EXPECT_EQ(FormatBox(Box{{INT64_MAX}, {2}}), "[9223372036854775807:9223372036854775809]");
  EXPECT_EQ(FormatBox(Box{{-3, 0}, {1, -2}}), "[-3:-2, 0:-2]");
}

}  // namespace
}  // namespace ckpt
