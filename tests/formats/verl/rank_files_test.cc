#include "formats/verl/internal/rank_files.h"

#include <initializer_list>

#include <gmock/gmock.h>

#include "tests/testing/matchers.h"

namespace ckpt::verl {
namespace {

using ckpt::testing::FailsWith;
using ckpt::testing::IsOk;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

Result<std::vector<std::string>> Find(std::initializer_list<const char*> names) {
  std::vector<DirectoryEntry> entries;
  for (const char* name : names) entries.push_back({.name = name, .type = FileType::kRegular});
  return FindModelFiles("/c", entries);
}

TEST(RankFilesTest, NamesSayStateWorldAndRank) {
  const auto file = ParseRankFile("extra_state_world_size_16_rank_9.pt");
  ASSERT_TRUE(file);
  EXPECT_EQ(file->state, "extra_state");
  EXPECT_EQ(file->world_size, 16);
  EXPECT_EQ(file->rank, 9);
  for (const char* other :
       {"model.pt", "model_world_size_2.pt", "model_world_size_2_rank_1.pth",
        "model_world_size_-2_rank_1.pt", "model_world_size_2_rank_.pt",
        "model_world_size__rank_1.pt", "model_world_size_99999999999999999999_rank_1.pt",
        "model_world_size_2_rank_1.pt.tmp"}) {
    EXPECT_FALSE(ParseRankFile(other)) << other;
  }
}

TEST(RankFilesTest, TheModelsFilesComeByRank) {
  const auto files = Find({"optim_world_size_2_rank_0.pt", "model_world_size_2_rank_1.pt",
                           "fsdp_config.json", "model_world_size_2_rank_0.pt"});
  ASSERT_THAT(files, IsOk());
  EXPECT_THAT(*files, ElementsAre("model_world_size_2_rank_0.pt", "model_world_size_2_rank_1.pt"));
}

TEST(RankFilesTest, MissingRanksAreNamed) {
  const auto files = Find({"model_world_size_3_rank_1.pt"});
  EXPECT_THAT(files, FailsWith(ErrorKind::kMissingFile));
  EXPECT_THAT(files.status().first().actual,
              HasSubstr("model_world_size_3_rank_0.pt, model_world_size_3_rank_2.pt"));
}

TEST(RankFilesTest, FilesOfTwoSavesAreRefused) {
  EXPECT_THAT(Find({"model_world_size_1_rank_0.pt", "model_world_size_2_rank_0.pt"}),
              FailsWith(ErrorKind::kBadMetadata));
  EXPECT_THAT(Find({"model_world_size_1_rank_0.pt", "model_world_size_1_rank_1.pt"}),
              FailsWith(ErrorKind::kBadMetadata));
  EXPECT_THAT(Find({"model_world_size_9999999_rank_0.pt"}), FailsWith(ErrorKind::kBadMetadata));
}

}  // namespace
}  // namespace ckpt::verl
