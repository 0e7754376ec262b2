#include "core/plan/follow_chunks.h"

#include <cstdint>
#include <ostream>
#include <vector>

#include <gmock/gmock.h>

#include "core/layout/affine.h"
#include "tests/testing/matchers.h"

namespace ckpt {

bool operator==(const RowsFromFile& a, const RowsFromFile& b) {
  return a.file == b.file && a.box == b.box;
}
void PrintTo(const RowsFromFile& rows, std::ostream* os) {
  *os << FormatBox(rows.box) << " from file " << rows.file;
}

namespace {

using ::testing::ElementsAre;
using testing::FailsWith;
using testing::IsOk;
using testing::IsOkAndHolds;

// Rows [begin, end) of a source tensor in one file.
struct StoredRows {
  std::int64_t begin = 0;
  std::int64_t end = 0;
  FileId file = 0;
};

// Tensors "0", "1", … of `cols` columns with these chunks. Tensor "i" is number i of the index.
CheckpointIndex IndexOf(const std::vector<std::vector<StoredRows>>& tensors, std::int64_t cols) {
  IndexBuilder builder;
  const EncodingId raw = builder.AddEncoding("raw");
  for (int file = 0; file < 4; ++file) builder.AddFile("rank-" + std::to_string(file));
  for (std::size_t t = 0; t < tensors.size(); ++t) {
    builder.AddTensor(std::to_string(t), DType::kFloat32, {tensors[t].back().end, cols});
    for (const auto& [begin, end, file] : tensors[t]) {
      builder.AddChunk(Box{.offsets = {begin, 0}, .sizes = {end - begin, cols}}, file, raw, 0, 0);
    }
  }
  return builder.Build().value();
}

// Rows of source `source` from `source_row` on become those from `target_row` on.
layout::Nest CopyRows(std::uint32_t source, std::int64_t source_row, std::int64_t target_row,
                      std::int64_t rows, std::int64_t cols) {
  layout::Nest nest = {
      .source = source,
      .target_origin = {target_row, 0},
      .source_origin = {source_row, 0},
      .loops = {{.extent = rows}, {.extent = cols, .target_dim = 1, .source_dim = 1}}};
  layout::Normalize(nest);
  return nest;
}

RowsFromFile Rows(std::int64_t begin, std::int64_t end, std::int64_t cols, FileId file) {
  return {.box = {.offsets = {begin, 0}, .sizes = {end - begin, cols}}, .file = file};
}

constexpr std::int64_t kCols = 3;

TargetTensor Target(std::int64_t rows) {
  return {.key = "t", .dtype = DType::kFloat32, .shape = {rows, kCols}};
}

TEST(FollowChunksTest, CutsACopyWhereItsSourceIsCut) {
  const CheckpointIndex index = IndexOf({{{0, 4, 0}, {4, 6, 2}, {6, 10, 1}}}, kCols);
  EXPECT_THAT(
      FollowChunks(Target(10), {.nests = {CopyRows(0, 0, 0, 10, kCols)}}, index),
      IsOkAndHolds(ElementsAre(Rows(0, 4, kCols, 0), Rows(4, 6, kCols, 2), Rows(6, 10, kCols, 1))));
}

TEST(FollowChunksTest, JoinsNeighboursOfOneFile) {
  const CheckpointIndex index = IndexOf({{{0, 4, 1}, {4, 6, 1}, {6, 10, 0}}}, kCols);
  EXPECT_THAT(FollowChunks(Target(10), {.nests = {CopyRows(0, 0, 0, 10, kCols)}}, index),
              IsOkAndHolds(ElementsAre(Rows(0, 6, kCols, 1), Rows(6, 10, kCols, 0))));
}

// Gate and up of a fused fc1 are targets of their own: halves that are cut elsewhere than in the
// middle.
TEST(FollowChunksTest, CutsTheHalvesOfASource) {
  const CheckpointIndex index = IndexOf({{{0, 3, 0}, {3, 7, 1}, {7, 10, 2}}}, kCols);
  EXPECT_THAT(FollowChunks(Target(5), {.nests = {CopyRows(0, 0, 0, 5, kCols)}}, index),
              IsOkAndHolds(ElementsAre(Rows(0, 3, kCols, 0), Rows(3, 5, kCols, 1))));
  EXPECT_THAT(FollowChunks(Target(5), {.nests = {CopyRows(0, 5, 0, 5, kCols)}}, index),
              IsOkAndHolds(ElementsAre(Rows(0, 2, kCols, 1), Rows(2, 5, kCols, 2))));
}

TEST(FollowChunksTest, StacksSeveralSources) {
  const CheckpointIndex index = IndexOf({{{0, 4, 2}}, {{0, 1, 2}, {1, 4, 3}}}, kCols);
  EXPECT_THAT(
      FollowChunks(Target(8), {.nests = {CopyRows(1, 0, 4, 4, kCols), CopyRows(0, 0, 0, 4, kCols)}},
                   index),
      IsOkAndHolds(ElementsAre(Rows(0, 5, kCols, 2), Rows(5, 8, kCols, 3))));
}

TEST(FollowChunksTest, GivesWhatZerosFillToTheFirstFile) {
  const CheckpointIndex index = IndexOf({{{0, 4, 1}}}, kCols);
  layout::Nest zeros = {.source = layout::Nest::kZeroFill,
                        .target_origin = {4, 0},
                        .source_origin = {},
                        .loops = {{.extent = 2, .source_step = 0},
                                  {.extent = kCols, .target_dim = 1, .source_step = 0}}};
  EXPECT_THAT(FollowChunks(Target(6), {.nests = {CopyRows(0, 0, 0, 4, kCols), zeros}}, index),
              IsOkAndHolds(ElementsAre(Rows(0, 4, kCols, 1), Rows(4, 6, kCols, 0))));
}

// Rows 0, 2, 4 from one tensor and 1, 3, 5 from another, as interleaved queries and keys are.
std::vector<layout::Nest> Interleaved() {
  std::vector<layout::Nest> nests;
  for (std::uint32_t source = 0; source < 2; ++source) {
    nests.push_back({.source = source,
                     .target_origin = {source, 0},
                     .source_origin = {0, 0},
                     .loops = {{.extent = 3, .target_step = 2},
                               {.extent = kCols, .target_dim = 1, .source_dim = 1}}});
  }
  return nests;
}

TEST(FollowChunksTest, JoinsInterleavedRowsOfOneFile) {
  const CheckpointIndex index = IndexOf({{{0, 3, 2}}, {{0, 3, 2}}}, kCols);
  EXPECT_THAT(FollowChunks(Target(6), {.nests = Interleaved()}, index),
              IsOkAndHolds(ElementsAre(Rows(0, 6, kCols, 2))));
}

TEST(FollowChunksTest, RefusesRowsThatInterleaveFiles) {
  const CheckpointIndex index = IndexOf({{{0, 3, 0}}, {{0, 3, 1}}}, kCols);
  EXPECT_THAT(FollowChunks(Target(6), {.nests = Interleaved()}, index),
              FailsWith(ErrorKind::kUnsupported));
}

// The left columns of every row are in one file, the right ones in another.
TEST(FollowChunksTest, CutsRowsThatComeFromSeveralFiles) {
  const CheckpointIndex index = IndexOf({{{0, 4, 0}}, {{0, 4, 1}}}, kCols);
  std::vector<layout::Nest> nests = {CopyRows(0, 0, 0, 4, kCols), CopyRows(1, 0, 0, 4, kCols)};
  nests[1].target_origin[1] = kCols;
  const TargetTensor wide = {.key = "wide", .dtype = DType::kFloat32, .shape = {4, 2 * kCols}};
  const auto rows = FollowChunks(wide, {.nests = nests}, index);
  ASSERT_THAT(rows, IsOk());
  ASSERT_EQ(rows->size(), 8U);
  EXPECT_EQ((*rows)[0], (RowsFromFile{.box = {{0, 0}, {1, kCols}}, .file = 0}));
  EXPECT_EQ((*rows)[1], (RowsFromFile{.box = {{0, kCols}, {1, kCols}}, .file = 1}));
  EXPECT_EQ((*rows)[7], (RowsFromFile{.box = {{3, kCols}, {1, kCols}}, .file = 1}));
}

// Layers of three rows, of which the second is cut between two files: what lies together in one
// file is one block for each part of a layer and for whole layers.
TEST(FollowChunksTest, CutsAStackWhereALayerIsCut) {
  const CheckpointIndex index = IndexOf({{{0, 3, 0}}, {{0, 1, 0}, {1, 3, 1}}, {{0, 3, 1}}}, kCols);
  std::vector<layout::Nest> nests;
  for (std::uint32_t layer = 0; layer < 3; ++layer) {
    nests.push_back({.source = layer,
                     .target_origin = {layer, 0, 0},
                     .source_origin = {0, 0},
                     .loops = {{.extent = 3, .target_dim = 1},
                               {.extent = kCols, .target_dim = 2, .source_dim = 1}}});
    layout::Normalize(nests.back());
  }
  const TargetTensor stack = {.key = "s", .dtype = DType::kFloat32, .shape = {3, 3, kCols}};
  EXPECT_THAT(
      FollowChunks(stack, {.nests = nests}, index),
      IsOkAndHolds(ElementsAre(RowsFromFile{.box = {{0, 0, 0}, {1, 3, kCols}}, .file = 0},
                               RowsFromFile{.box = {{1, 0, 0}, {1, 1, kCols}}, .file = 0},
                               RowsFromFile{.box = {{1, 1, 0}, {1, 2, kCols}}, .file = 1},
                               RowsFromFile{.box = {{2, 0, 0}, {1, 3, kCols}}, .file = 1})));
}

// Transposed, each row of the target has elements of every row of the source.
TEST(FollowChunksTest, CutsEveryRowOfATransposeOfSeveralFiles) {
  const layout::Nest transpose = {
      .source = 0,
      .target_origin = {0, 0},
      .source_origin = {0, 0},
      .loops = {{.extent = kCols, .source_dim = 1}, {.extent = 4, .target_dim = 1}}};
  const TargetTensor target = {.key = "t", .dtype = DType::kFloat32, .shape = {kCols, 4}};
  EXPECT_THAT(FollowChunks(target, {.nests = {transpose}}, IndexOf({{{0, 4, 3}}}, kCols)),
              IsOkAndHolds(ElementsAre(Rows(0, kCols, 4, 3))));
  const auto rows =
      FollowChunks(target, {.nests = {transpose}}, IndexOf({{{0, 2, 0}, {2, 4, 1}}}, kCols));
  ASSERT_THAT(rows, IsOk());
  EXPECT_EQ(rows->size(), static_cast<std::size_t>(2 * kCols));
}

TEST(FollowChunksTest, TakesAScalarForOneRow) {
  IndexBuilder builder;
  const EncodingId raw = builder.AddEncoding("raw");
  builder.AddFile("rank-0");
  builder.AddTensor("s", DType::kFloat32, {});
  builder.AddChunk(Box{}, builder.AddFile("rank-1"), raw, 0, 4);
  const TargetTensor target = {.key = "s", .dtype = DType::kFloat32, .shape = {}};
  EXPECT_THAT(
      FollowChunks(target, {.nests = {layout::IdentityNest(0, {})}}, builder.Build().value()),
      IsOkAndHolds(ElementsAre(RowsFromFile{.box = {}, .file = 1})));
}

}  // namespace
}  // namespace ckpt
