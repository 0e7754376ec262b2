#include "trainer/params/flat_layout.h"

#include <algorithm>
#include <numeric>
#include <ostream>
#include <random>
#include <set>

#include <gmock/gmock.h>

#include "tests/testing/test_seed.h"

namespace ckpt::trainer {

void PrintTo(const RowRange& range, std::ostream* os) {
  *os << "tensor " << range.tensor << " rows [" << range.row_begin << ", +" << range.rows
      << ") at [" << range.flat_begin << ", +" << range.elems << ")";
}

namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

using Shapes = std::vector<Dims>;

constexpr std::uint64_t kDefaultSeed = 20261121;

std::string Draw(const Shapes& shapes) {
  std::string text;
  for (const Dims& shape : shapes) text += FormatDims(shape);
  return text;
}

Shapes RandomShapes(std::mt19937_64& rng) {
  const auto random = [&rng](std::int64_t lo, std::int64_t hi) {
    return std::uniform_int_distribution<std::int64_t>(lo, hi)(rng);
  };
  Shapes shapes(static_cast<std::size_t>(random(1, 9)));
  const std::int64_t longest = random(0, 3) == 0 ? 40 : 8;
  for (Dims& shape : shapes) {
    shape.resize(static_cast<std::size_t>(random(0, 3)));
    for (std::int64_t& dim : shape) dim = random(1, longest);
  }
  return shapes;
}

Shapes Pick(const Shapes& shapes, const std::vector<std::size_t>& indices) {
  Shapes picked;
  for (const std::size_t t : indices) picked.push_back(shapes[t]);
  return picked;
}

std::int64_t ShardElems(const FlatLayout& layout) { return layout.total_elems / layout.num_shards; }

// What the header promises of LayOut, without its arithmetic.
void ExpectSoundLayout(const Shapes& shapes, const FlatLayoutOptions& options) {
  const FlatLayout layout = LayOut(shapes, options);
  ASSERT_EQ(layout.num_shards, options.num_shards);
  ASSERT_EQ(layout.total_elems % options.num_shards, 0);
  ASSERT_EQ(ShardElems(layout) % options.alignment_elems, 0);
  ASSERT_EQ(layout.offsets.size(), shapes.size());

  std::vector<std::pair<std::int64_t, std::int64_t>> spans;
  std::int64_t gaps = 0;
  std::int64_t all_elems = 0;
  std::int64_t multiple = options.alignment_elems;
  for (std::size_t t = 0; t < shapes.size(); ++t) {
    const std::int64_t elems = NumElements(shapes[t]);
    const std::int64_t row = shapes[t].empty() ? 1 : elems / shapes[t][0];
    ASSERT_EQ(layout.num_elems[t], elems);
    ASSERT_EQ(layout.row_elems[t], row);
    const std::int64_t unit = std::lcm(row, options.alignment_elems);
    ASSERT_EQ(layout.offsets[t] % unit, 0) << "tensor " << t << " is not aligned";
    for (int shard = 0; shard <= options.num_shards; ++shard) {
      const std::int64_t into = shard * ShardElems(layout) - layout.offsets[t];
      const bool is_cut = 0 < into && into < elems;
      ASSERT_TRUE(!is_cut || into % row == 0) << "tensor " << t << " is cut in a row";
    }
    spans.emplace_back(layout.offsets[t], layout.offsets[t] + elems);
    all_elems += elems;
    gaps += unit - 1;
    multiple = std::lcm(multiple, row);
  }
  std::sort(spans.begin(), spans.end());
  std::int64_t end = 0;
  for (const auto& [span_begin, span_end] : spans) {
    ASSERT_GE(span_begin, end) << "tensors overlap";
    end = span_end;
  }
  ASSERT_LE(end, layout.total_elems);
  ASSERT_LT(layout.total_elems - all_elems, options.num_shards * multiple + gaps);
}

// The pieces of all shards of a division put together give every row of every tensor once, in
// order.
void ExpectShardsCoverRows(const FlatLayout& layout, int num_parts) {
  const std::int64_t part = layout.total_elems / num_parts;
  std::vector<std::int64_t> next_row(layout.offsets.size(), 0);
  for (int p = 0; p < num_parts; ++p) {
    std::int64_t last_end = p * part;
    for (const RowRange& range : RowsWithin(layout, p * part, (p + 1) * part)) {
      const auto t = static_cast<std::size_t>(range.tensor);
      ASSERT_GT(range.rows, 0);
      ASSERT_EQ(range.row_begin, next_row[t]);
      ASSERT_EQ(range.elems, range.rows * layout.row_elems[t]);
      ASSERT_EQ(range.flat_begin, layout.offsets[t] + range.row_begin * layout.row_elems[t]);
      ASSERT_GE(range.flat_begin, last_end) << "not by position";
      last_end = range.flat_begin + range.elems;
      ASSERT_LE(last_end, (p + 1) * part);
      next_row[t] += range.rows;
    }
  }
  for (std::size_t t = 0; t < layout.offsets.size(); ++t) {
    ASSERT_EQ(next_row[t], layout.num_elems[t] / layout.row_elems[t]);
  }
}

TEST(FlatLayoutTest, RandomShapesAreCutBetweenRowsOnly) {
  const std::uint64_t seed = testing::TestSeed(kDefaultSeed);
  std::mt19937_64 rng(seed);
  for (int trial = 0; trial < 100'000; ++trial) {
    const Shapes shapes = RandomShapes(rng);
    const FlatLayoutOptions options = {.num_shards = static_cast<int>(rng() % 8) + 1,
                                       .alignment_elems = std::int64_t{1} << rng() % 7};
    SCOPED_TRACE(::testing::Message()
                 << "replay: CKPT_TEST_SEED=" << seed << " trial " << trial << ": " << Draw(shapes)
                 << " over " << options.num_shards << ", aligned to " << options.alignment_elems);
    ASSERT_NO_FATAL_FAILURE(ExpectSoundLayout(shapes, options));
    const FlatLayout layout = LayOut(shapes, options);
    for (int parts = 1; parts <= options.num_shards; ++parts) {
      if (options.num_shards % parts != 0) continue;
      ASSERT_NO_FATAL_FAILURE(ExpectShardsCoverRows(layout, parts)) << parts << " parts";
    }
  }
}

TEST(FlatLayoutTest, FillsTheGapThatAlignmentLeaves) {
  const Shapes shapes = {{2, 6}, {4, 4}, {4, 4}, {1, 2}, {1, 6}};
  const FlatLayout layout = LayOut(shapes, {.num_shards = 5, .alignment_elems = 1});
  EXPECT_EQ(layout.total_elems, 60);
  EXPECT_THAT(layout.offsets, ElementsAre(0, 20, 36, 18, 12));
}

TEST(FlatLayoutTest, ShardsHoldRowsOfSeveralTensors) {
  const Shapes shapes = {{7, 4}, {5, 3}, {4}, {3}};
  const FlatLayout layout = LayOut(shapes, {.num_shards = 5, .alignment_elems = 1});
  EXPECT_EQ(layout.total_elems, 60);
  EXPECT_THAT(layout.offsets, ElementsAre(0, 30, 45, 49));
  EXPECT_THAT(RowsWithin(layout, 24, 36),
              ElementsAre(RowRange{0, 6, 1, 24, 4}, RowRange{1, 0, 2, 30, 6}));
  EXPECT_THAT(RowsWithin(layout, 36, 48),
              ElementsAre(RowRange{1, 2, 3, 36, 9}, RowRange{2, 0, 3, 45, 3}));
  EXPECT_THAT(RowsWithin(layout, 48, 60),
              ElementsAre(RowRange{2, 3, 1, 48, 1}, RowRange{3, 0, 3, 49, 3}));
}

TEST(FlatLayoutTest, AShardMayBeEmpty) {
  const Shapes shapes = {{4, 4}, {3, 3}, {1, 3}, {2}, {1}, {2, 4}, {1}};
  const FlatLayout layout = LayOut(shapes, {.num_shards = 3, .alignment_elems = 1});
  EXPECT_EQ(layout.total_elems, 72);
  EXPECT_THAT(layout.offsets, ElementsAre(0, 24, 33, 36, 38, 16, 39));
  EXPECT_THAT(RowsWithin(layout, 48, 72), IsEmpty());
}

// The tensors that Megatron-FSDP's own order cuts after two and two thirds rows.
TEST(FlatLayoutTest, SmallMatricesAtTheEndAreNotCutInARow) {
  const Shapes shapes = {{2, 4}, {2, 4}, {3, 3}, {3}};
  ExpectSoundLayout(shapes, {.num_shards = 2, .alignment_elems = 1});
}

TEST(FlatLayoutTest, AScalarIsOneRowOfOneElement) {
  const FlatLayout layout = LayOut(Shapes{{}, {3}}, {.num_shards = 2, .alignment_elems = 2});
  EXPECT_THAT(layout.row_elems, ElementsAre(1, 1));
  EXPECT_THAT(layout.num_elems, ElementsAre(1, 3));
  EXPECT_THAT(layout.offsets, ElementsAre(4, 0));
  EXPECT_EQ(layout.total_elems, 8);
}

TEST(FlatLayoutTest, NoTensorsTakeNoSpace) {
  const FlatLayout layout = LayOut(Shapes{}, {.num_shards = 8});
  EXPECT_EQ(layout.total_elems, 0);
  EXPECT_THAT(RowsWithin(layout, 0, 0), IsEmpty());
}

TEST(FlatLayoutTest, ATinyTensorIsPaddedToOneAlignedShardEach) {
  EXPECT_EQ(LayOut(Shapes{{40}}, {.num_shards = 8, .alignment_elems = 32}).total_elems, 256);
}

TEST(FlatLayoutDeathTest, RefusesAnEmptyTensor) {
  EXPECT_DEATH(LayOut(Shapes{{0, 4}}, {}), "num_elems");
}

TEST(FlatLayoutDeathTest, RefusesARangeThatCutsARow) {
  const FlatLayout layout = LayOut(Shapes{{4, 4}}, {.num_shards = 2, .alignment_elems = 1});
  EXPECT_DEATH(RowsWithin(layout, 0, 6), "row == 0");
}

// Layouts with the same finest division hold the same tensors at the same places, however coarse
// the shards in use: what HFSDP relies on.
TEST(FlatLayoutTest, ACoarseShardIsItsFineShardsInOrder) {
  const Shapes shapes = {{33, 12}, {7, 8}, {50}, {9, 4, 2}};
  const FlatLayout layout = LayOut(shapes, {.num_shards = 8});
  const std::int64_t slice = ShardElems(layout);
  for (int shard = 0; shard < 4; ++shard) {
    std::int64_t coarse = 0;
    std::int64_t fine = 0;
    for (const RowRange& r : RowsWithin(layout, 2 * shard * slice, 2 * (shard + 1) * slice)) {
      coarse += r.elems;
    }
    for (int half = 0; half < 2; ++half) {
      const std::int64_t begin = (2 * shard + half) * slice;
      for (const RowRange& r : RowsWithin(layout, begin, begin + slice)) fine += r.elems;
    }
    EXPECT_EQ(coarse, fine);
  }
}

// Tensors of every group: each once, ascending.
void ExpectPartition(const std::vector<std::vector<std::size_t>>& groups, std::size_t num_tensors) {
  std::set<std::size_t> seen;
  for (const std::vector<std::size_t>& group : groups) {
    ASSERT_FALSE(group.empty());
    ASSERT_TRUE(std::is_sorted(group.begin(), group.end()));
    for (const std::size_t t : group) ASSERT_TRUE(seen.insert(t).second);
  }
  ASSERT_EQ(seen.size(), num_tensors);
}

TEST(GroupTensorsTest, RowsWithALargeCommonMultipleAreKeptApart) {
  const Shapes shapes = {{7168, 18432}, {7168, 16384}, {16384, 7168}};
  EXPECT_THAT(GroupTensors(shapes, {.num_shards = 8}),
              ElementsAre(ElementsAre(0), ElementsAre(1), ElementsAre(2)));
}

TEST(GroupTensorsTest, OneTransformerLayerIsOneGroup) {
  const Shapes shapes = {{4096}, {6144, 4096}, {4096, 4096}, {4096}, {28672, 4096}, {4096, 14336}};
  EXPECT_THAT(GroupTensors(shapes, {.num_shards = 64}), ElementsAre(ElementsAre(0, 1, 2, 3, 4, 5)));
}

// A layer of a real model pays nothing for the alignment of its tensors.
TEST(FlatLayoutTest, TensorsOfWholeAlignmentsLieWithoutGaps) {
  const Shapes shapes = {{4096}, {6144, 4096}, {4096, 4096}, {128}, {28672, 4096}, {4096, 14336}};
  for (const int num_shards : {1, 2, 8}) {
    const FlatLayout layout = LayOut(shapes, {.num_shards = num_shards});
    for (const FlatGap& gap : ListGaps(layout)) {
      EXPECT_EQ(gap.begin + gap.elems, layout.total_elems) << "a gap before the end";
    }
  }
}

TEST(GroupTensorsTest, ASmallLayerIsOneGroup) {
  const Shapes shapes = {{64}, {128, 64}, {64, 64}, {64}, {256, 64}, {64, 128}};
  for (const int num_shards : {1, 2, 4, 8}) {
    EXPECT_THAT(GroupTensors(shapes, {.num_shards = num_shards}),
                ElementsAre(ElementsAre(0, 1, 2, 3, 4, 5)))
        << num_shards;
  }
}

TEST(GroupTensorsTest, RowsWithoutACommonFactorDoNotInflateEachOther) {
  const Shapes shapes = {{40, 37}, {40, 41}, {40, 43}, {37}};
  const FlatLayoutOptions options = {.num_shards = 8};
  std::int64_t padded = 0;
  for (const std::vector<std::size_t>& group : GroupTensors(shapes, options)) {
    padded += LayOut(Pick(shapes, group), options).total_elems;
  }
  EXPECT_LT(padded, LayOut(shapes, options).total_elems / 100);
}

TEST(GroupTensorsTest, RandomGroupsPartitionTheTensorsAndBoundThePadding) {
  const std::uint64_t seed = testing::TestSeed(kDefaultSeed);
  std::mt19937_64 rng(seed);
  for (int trial = 0; trial < 20'000; ++trial) {
    const Shapes shapes = RandomShapes(rng);
    const FlatLayoutOptions options = {.num_shards = static_cast<int>(rng() % 8) + 1,
                                       .alignment_elems = 64};
    SCOPED_TRACE(::testing::Message() << "replay: CKPT_TEST_SEED=" << seed << " trial " << trial
                                      << ": " << Draw(shapes) << " over " << options.num_shards);
    const auto groups = GroupTensors(shapes, options);
    ASSERT_NO_FATAL_FAILURE(ExpectPartition(groups, shapes.size()));
    std::int64_t alone = 0;
    std::int64_t elems = 0;
    for (const Dims& shape : shapes) {
      const FlatLayout layout = LayOut(Shapes{shape}, options);
      alone += layout.total_elems;
      elems += layout.num_elems[0];
    }
    std::int64_t grouped = 0;
    for (const std::vector<std::size_t>& group : groups) {
      grouped += LayOut(Pick(shapes, group), options).total_elems;
    }
    const std::int64_t slack =
        static_cast<std::int64_t>(shapes.size()) * options.num_shards * options.alignment_elems;
    ASSERT_LE(grouped, alone + elems * 3 / 100 + slack);
  }
}

TEST(ListGapsTest, GapsAndTensorsCoverTheArrayOnce) {
  std::mt19937_64 rng(testing::TestSeed(kDefaultSeed));
  for (int i = 0; i < 2000; ++i) {
    const Shapes shapes = RandomShapes(rng);
    const FlatLayout layout = LayOut(shapes, {.num_shards = 1 + i % 5});
    std::vector<std::pair<std::int64_t, std::int64_t>> spans;
    for (const FlatGap& gap : ListGaps(layout)) spans.emplace_back(gap.begin, gap.elems);
    for (std::size_t t = 0; t < shapes.size(); ++t) {
      spans.emplace_back(layout.offsets[t], layout.num_elems[t]);
    }
    std::sort(spans.begin(), spans.end());
    std::int64_t end = 0;
    for (const auto& [begin, elems] : spans) {
      ASSERT_EQ(begin, end) << Draw(shapes);
      ASSERT_GT(elems, 0) << Draw(shapes);
      end = begin + elems;
    }
    ASSERT_EQ(end, layout.total_elems) << Draw(shapes);
  }
}

}  // namespace
}  // namespace ckpt::trainer
