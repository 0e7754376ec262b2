#include "core/layout/affine.h"

#include <algorithm>
#include <random>
#include <set>
#include <utility>

#include <gtest/gtest.h>

#include "core/layout/cover.h"
#include "tests/core/layout/apply_nest.h"
#include "tests/testing/matchers.h"

namespace ckpt::layout {
namespace {

using testing::FailsWith;
using testing::ForEachElement;
using testing::IsOk;

using Pairs = std::multiset<std::pair<Dims, Dims>>;

Pairs PairsOf(const std::vector<Nest>& nests) {
  Pairs pairs;
  for (const Nest& nest : nests) {
    ForEachElement(nest, [&](const Dims& to, const Dims& from) { pairs.emplace(to, from); });
  }
  return pairs;
}

bool Contains(const Box& box, const Dims& index) {
  for (std::size_t d = 0; d < index.size(); ++d) {
    if (index[d] < box.offsets[d] || index[d] >= box.offsets[d] + box.sizes[d]) return false;
  }
  return true;
}

// Atomic axes laid out in a random order and grouping on each side, as tables do, within larger
// tensors.
Nest RandomNest(std::mt19937_64& rng) {
  const auto pick = [&](int lo, int hi) { return std::uniform_int_distribution<int>(lo, hi)(rng); };
  Nest nest;
  const int num_axes = pick(1, 4);
  nest.loops.resize(static_cast<std::size_t>(num_axes));
  for (Loop& loop : nest.loops) loop.extent = pick(1, 4);
  for (const bool is_target : {true, false}) {
    std::vector<std::size_t> order(nest.loops.size());
    for (std::size_t i = 0; i < order.size(); ++i) order[i] = i;
    std::shuffle(order.begin(), order.end(), rng);
    const int ndim = pick(1, 3);
    Dims origin;
    for (int d = 0; d < ndim; ++d) origin.push_back(pick(0, 3));
    Dims steps(static_cast<std::size_t>(ndim), 1);
    for (const std::size_t k : order) {
      const int dim = pick(0, ndim - 1);
      auto& step = steps[static_cast<std::size_t>(dim)];
      if (pick(0, 3) == 0) step += pick(1, 2);  // a slot of a direct sum beside it
      (is_target ? nest.loops[k].target_dim : nest.loops[k].source_dim) = dim;
      (is_target ? nest.loops[k].target_step : nest.loops[k].source_step) = step;
      step *= nest.loops[k].extent;
    }
    (is_target ? nest.target_origin : nest.source_origin) = origin;
  }
  return nest;
}

Box RandomBox(std::mt19937_64& rng, const Box& bounds) {
  Box box;
  for (std::size_t d = 0; d < bounds.sizes.size(); ++d) {
    std::uniform_int_distribution<std::int64_t> at(bounds.offsets[d] - 1,
                                                   bounds.offsets[d] + bounds.sizes[d] + 1);
    const std::int64_t a = at(rng);
    const std::int64_t b = at(rng);
    box.offsets.push_back(std::min(a, b));
    box.sizes.push_back(std::max(a, b) - std::min(a, b));
  }
  return box;
}

TEST(AffineProperty, NormalizingKeepsEveryPairOfElements) {
  std::mt19937_64 rng(1);
  for (int i = 0; i < 2000; ++i) {
    const Nest nest = RandomNest(rng);
    Nest normal = nest;
    Normalize(normal);
    ASSERT_EQ(PairsOf({normal}), PairsOf({nest})) << FormatNest(nest);
    ASSERT_EQ(Volume(normal), Volume(nest));
  }
}

TEST(AffineProperty, ClippingKeepsExactlyTheElementsInTheBox) {
  std::mt19937_64 rng(2);
  for (int i = 0; i < 4000; ++i) {
    Nest nest = RandomNest(rng);
    Normalize(nest);
    const bool is_target = i % 2 == 0;
    const Box box = RandomBox(rng, is_target ? TargetBounds(nest) : SourceBounds(nest));
    Pairs want;
    for (const auto& pair : PairsOf({nest})) {
      if (Contains(box, is_target ? pair.first : pair.second)) want.insert(pair);
    }
    const std::vector<Nest> parts = is_target ? ClipToTarget(nest, box) : ClipToSource(nest, box);
    ASSERT_EQ(PairsOf(parts), want) << FormatNest(nest) << " in " << FormatBox(box);
    for (const Nest& part : parts) {
      for (const Loop& loop : part.loops) ASSERT_GT(loop.extent, 1);
    }
  }
}

// Every iteration of one loop as a nest of its own.
std::vector<Nest> Unrolled(const Nest& nest, std::size_t which) {
  Nest one = nest;
  const Loop loop = one.loops[which];
  one.loops.erase(one.loops.begin() + static_cast<std::ptrdiff_t>(which));
  std::vector<Nest> nests;
  for (std::int64_t i = 0; i < loop.extent; ++i) {
    nests.push_back(one);
    one.target_origin[static_cast<std::size_t>(loop.target_dim)] += loop.target_step;
    one.source_origin[static_cast<std::size_t>(loop.source_dim)] += loop.source_step;
  }
  return nests;
}

TEST(AffineProperty, JoiningUndoesUnrolling) {
  std::mt19937_64 rng(3);
  for (int i = 0; i < 2000; ++i) {
    Nest nest = RandomNest(rng);
    Normalize(nest);
    for (std::size_t k = 0; k < nest.loops.size(); ++k) {
      ASSERT_EQ(JoinNests(Unrolled(nest, k)), std::vector<Nest>{nest}) << FormatNest(nest);
    }
  }
}

TEST(AffineProperty, JoiningKeepsEveryPairOfElements) {
  std::mt19937_64 rng(4);
  for (int i = 0; i < 2000; ++i) {
    Nest nest = RandomNest(rng);
    Normalize(nest);
    if (nest.loops.empty()) continue;
    std::vector<Nest> nests = Unrolled(nest, rng() % nest.loops.size());
    std::shuffle(nests.begin(), nests.end(), rng);
    nests.push_back(RandomNest(rng));
    ASSERT_EQ(PairsOf(JoinNests(nests)), PairsOf(nests)) << FormatNest(nest);
  }
}

TEST(Affine, JoinsNoNestsThatReachIntoEachOther) {
  // Three elements each, one apart: a loop over both would be no mixed radix.
  const std::vector<Nest> nests = {{0, {0}, {0}, {{3, 0, 2, 0, 2}}},
                                   {0, {1}, {3}, {{3, 0, 2, 0, 2}}}};
  EXPECT_EQ(JoinNests(nests), nests);
}

TEST(Affine, CutsAMixedRadixIntervalIntoFewParts) {
  // Rows (8 10 12) of one dim, cut in the middle of everything: at most 2k-1 = 5 parts.
  const Nest nest = {0, {0}, {0, 0, 0}, {{8, 0, 120, 0, 1}, {10, 0, 12, 1, 1}, {12, 0, 1, 2, 1}}};
  EXPECT_EQ(ClipToTarget(nest, {{131}, {700}}).size(), 5U);
  EXPECT_EQ(ClipToTarget(nest, {{120}, {240}}).size(), 1U);
}

TEST(Affine, JoinsLoopsThatAreOneOnBothSides) {
  Nest nest = {
      0, {0, 0}, {4, 0}, {{3, 0, 8, 0, 8}, {2, 0, 4, 0, 4}, {4, 0, 1, 0, 1}, {5, 1, 1, 1, 1}}};
  Normalize(nest);
  EXPECT_EQ(nest.loops, (std::vector<Loop>{{24, 0, 1, 0, 1}, {5, 1, 1, 1, 1}}));
}

// More positions than are looked at one by one: parts of a row that share no unit, but lie apart.
TEST(Affine, ProvesPartsThatLieApartOneByOne) {
  constexpr std::int64_t kMany = std::int64_t{1} << 40;
  const auto run = [](std::int64_t begin, std::int64_t size) {
    return Nest{0, {begin}, {0}, {{size, 0, 1, 0, 1}}};
  };
  const auto zipped = [](std::int64_t begin) { return Nest{0, {begin}, {0}, {{5, 0, 2, 0, 1}}}; };
  const std::vector<Nest> nests = {run(0, kMany), zipped(kMany), zipped(kMany + 1),
                                   run(kMany + 10, 7)};
  EXPECT_THAT(ProveExactCover(Dims{kMany + 17}, nests), IsOk());
  EXPECT_THAT(ProveExactCover(Dims{kMany + 18}, nests), FailsWith(ErrorKind::kCoverage));
  const std::vector<Nest> open = {nests[0], nests[1], nests[3]};
  EXPECT_THAT(ProveExactCover(Dims{kMany + 17}, open), FailsWith(ErrorKind::kCoverage));
  std::vector<Nest> twice = nests;
  twice.push_back(run(kMany + 4, 2));
  EXPECT_THAT(ProveExactCover(Dims{kMany + 17}, twice), FailsWith(ErrorKind::kOverlap));
  const std::vector<Nest> late = {run(3, 4)};
  EXPECT_THAT(ProveExactCover(Dims{7}, late), FailsWith(ErrorKind::kCoverage));
}

TEST(Affine, IdentityCoversItsTensor) {
  const Dims shape = {3, 1, 4};
  EXPECT_THAT(ProveExactCover(shape, std::vector<Nest>{IdentityNest(0, shape)}), IsOk());
}

// A 6-row tensor: rows 0,2,4 from one source, 1,3,5 from another.
std::vector<Nest> Interleaved() {
  return {{0, {0, 0}, {0, 0}, {{3, 0, 2, 0, 1}, {4, 1, 1, 1, 1}}},
          {1, {1, 0}, {0, 0}, {{3, 0, 2, 0, 1}, {4, 1, 1, 1, 1}}}};
}

TEST(Cover, AcceptsInterleavedAndStackedPieces) {
  EXPECT_THAT(ProveExactCover(Dims{6, 4}, Interleaved()), IsOk());
  std::vector<Nest> stacked;
  for (std::int64_t layer = 0; layer < 5; ++layer) {
    for (std::int64_t half = 0; half < 2; ++half) {
      stacked.push_back({0, {layer, half * 7, 0}, {0, 0}, {{7, 1, 1, 0, 1}, {3, 2, 1, 1, 1}}});
    }
  }
  EXPECT_THAT(ProveExactCover(Dims{5, 14, 3}, stacked), IsOk());
}

TEST(Cover, FindsGapsOverlapsAndOverruns) {
  std::vector<Nest> nests = Interleaved();
  EXPECT_THAT(ProveExactCover(Dims{7, 4}, nests), FailsWith(ErrorKind::kCoverage));
  EXPECT_THAT(ProveExactCover(Dims{6, 5}, nests), FailsWith(ErrorKind::kCoverage));
  EXPECT_THAT(ProveExactCover(Dims{5, 4}, nests), FailsWith(ErrorKind::kOutOfRange));
  nests.push_back(nests[0]);
  EXPECT_THAT(ProveExactCover(Dims{6, 4}, nests), FailsWith(ErrorKind::kOverlap));
  nests = {nests[0]};
  EXPECT_THAT(ProveExactCover(Dims{6, 4}, nests), FailsWith(ErrorKind::kCoverage));
  nests[0].loops[0].target_step = 0;
  EXPECT_THAT(ProveExactCover(Dims{6, 4}, nests), FailsWith(ErrorKind::kOverlap));
  EXPECT_THAT(ProveExactCover(Dims{6, 4}, {}), FailsWith(ErrorKind::kCoverage));
  EXPECT_THAT(ProveExactCover(Dims{0, 4}, {}), IsOk());
}

TEST(Cover, DecidesStaggeredPieces) {
  // [0:1, 0:3] [0:3, 3:4] [1:3, 0:3]: no dim separates them.
  std::vector<Nest> nests = {{0, {0, 0}, {0, 0}, {{3, 1, 1, 1, 1}}},
                             {0, {0, 3}, {0, 0}, {{3, 0, 1, 0, 1}}},
                             {0, {1, 0}, {0, 0}, {{2, 0, 1, 0, 1}, {3, 1, 1, 1, 1}}}};
  EXPECT_THAT(ProveExactCover(Dims{3, 4}, nests), IsOk());
  nests[0].loops[0].extent = 4;
  EXPECT_THAT(ProveExactCover(Dims{3, 4}, nests), FailsWith(ErrorKind::kOverlap));
}

TEST(CoverProperty, AgreesWithCountingElements) {
  std::mt19937_64 rng(3);
  for (int i = 0; i < 2000; ++i) {
    // Cut a box in two, sometimes drop, double or shift a part.
    const Dims shape = {6, 4};
    const Nest whole = IdentityNest(0, shape);
    const Box cut = RandomBox(rng, WholeBox(shape));
    std::vector<Nest> nests = ClipToTarget(whole, {{0, 0}, {cut.offsets[0] + 1, 4}});
    const auto rest = ClipToTarget(whole, {{cut.offsets[0] + 1, 0}, {7, 4}});
    nests.insert(nests.end(), rest.begin(), rest.end());
    if (i % 4 == 1 && !nests.empty()) nests.pop_back();
    if (i % 4 == 2 && !nests.empty()) nests.push_back(nests.front());
    if (i % 4 == 3) {
      const auto extra = ClipToTarget(whole, cut);
      nests.insert(nests.end(), extra.begin(), extra.end());
    }
    std::multiset<Dims> written;
    for (const Nest& nest : nests) {
      ForEachElement(nest, [&](const Dims& to, const Dims&) { written.insert(to); });
    }
    const std::set<Dims> distinct(written.begin(), written.end());
    const bool is_exact = written.size() == 24 && distinct.size() == 24;
    ASSERT_EQ(ProveExactCover(shape, nests).ok(), is_exact) << i;
  }
}

}  // namespace
}  // namespace ckpt::layout
