#include "core/checkpoint/index.h"

#include <gmock/gmock.h>

#include "core/base/warning.h"
#include "core/checkpoint/copy_index.h"
#include "tests/testing/matchers.h"

namespace ckpt {
namespace {

using testing::FailsWith;
using testing::IsOk;

TEST(DimsPool, GivesEqualDimsOneId) {
  DimsPool pool;
  const DimsId a = pool.Intern(Dims{1, 2});
  EXPECT_EQ(pool.Intern(Dims{1, 2}), a);
  EXPECT_NE(pool.Intern(Dims{2, 1}), a);
  EXPECT_NE(pool.Intern(Dims{}), a);
  EXPECT_EQ(pool.size(), 3U);
}

TEST(DimsPool, KeepsValuesWhileItGrows) {
  DimsPool pool;
  for (std::int64_t i = 0; i < 10000; ++i) pool.Intern(Dims{i, i * i, 7});
  for (std::int64_t i = 0; i < 10000; ++i) {
    ASSERT_EQ(pool.Intern(Dims{i, i * i, 7}), static_cast<DimsId>(i));
    ASSERT_THAT(pool.Get(static_cast<DimsId>(i)), ::testing::ElementsAre(i, i * i, 7));
  }
}

TEST(IndexBuilder, SortsTensorsAndKeepsTheirChunks) {
  IndexBuilder builder;
  const FileId file = builder.AddFile("f");
  EXPECT_EQ(builder.AddFile("f"), file);
  const EncodingId raw = builder.AddEncoding("raw");
  builder.AddTensor("b", DType::kInt8, {2});
  builder.AddChunk({{0}, {1}}, file, raw, 10, 1);
  builder.AddChunk({{1}, {1}}, file, raw, 11, 1);
  builder.AddTensor("a", DType::kBfloat16, {3});
  builder.AddChunk({{0}, {3}}, file, raw, 0, 6);
  const Result<CheckpointIndex> index = builder.Build();
  ASSERT_THAT(index, IsOk());
  ASSERT_EQ(index->tensors().size(), 2U);
  EXPECT_EQ(index->tensors()[0].key, "a");
  const GlobalTensor* b = index->FindTensor("b");
  ASSERT_NE(b, nullptr);
  ASSERT_EQ(index->chunks(*b).size(), 2U);
  EXPECT_EQ(index->box(index->chunks(*b)[1]), (Box{{1}, {1}}));
  EXPECT_EQ(index->encoding(index->chunks(*b)[1]), "raw");
  EXPECT_EQ(index->FindTensor("c"), nullptr);
}

TEST(CopyIndex, SaysHowRanksSaved) {
  IndexBuilder from;
  from.SetRanksSavedAlone();
  IndexBuilder to;
  BeginCopy(from.Build().value(), to);
  EXPECT_TRUE(to.Build().value().ranks_saved_alone());
  EXPECT_FALSE(IndexBuilder().Build().value().ranks_saved_alone());
}

TEST(IndexBuilder, RefusesAKeyTwice) {
  for (const int num_objects : {0, 1, 2}) {
    IndexBuilder builder;
    builder.AddTensor("b", DType::kInt8, {1});
    for (int i = 0; i < 2; ++i) {
      if (i < num_objects) {
        builder.AddObject({.key = "a"});
      } else {
        builder.AddTensor("a", DType::kInt8, {1});
      }
    }
    const Result<CheckpointIndex> index = builder.Build();
    ASSERT_THAT(index, FailsWith(ErrorKind::kBadMetadata)) << num_objects;
    EXPECT_EQ(index.status().first().tensor, "a");
  }
}

TEST(CheckpointIndex, DeliversOnlyWhatHasNoError) {
  IndexBuilder builder;
  builder.AddTensor("bad", DType::kInt8, {1});
  builder.AddTensor("odd", DType::kInt8, {1});
  builder.AddProblems(Error(ErrorKind::kCoverage, "hole").Tensor("bad"));
  builder.AddProblem(Warning(ErrorKind::kOverlap, "twice", "f", "odd"));
  const Result<CheckpointIndex> index = builder.Build();
  ASSERT_THAT(index, IsOk());
  EXPECT_THAT(index->CheckDeliverable("bad"), FailsWith(ErrorKind::kCoverage));
  EXPECT_THAT(index->CheckDeliverable("odd"), IsOk());
}

}  // namespace
}  // namespace ckpt
