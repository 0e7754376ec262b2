#include "formats/mp_rank/internal/rank_directories.h"

#include <string>
#include <vector>

#include <gmock/gmock.h>

#include "tests/testing/matchers.h"

namespace ckpt::mp_rank {
namespace {

using ::testing::ElementsAre;
using testing::FailsWith;
using ::testing::HasSubstr;
using testing::IsOk;
using ::testing::Optional;

std::vector<DirectoryEntry> Directories(const std::vector<std::string>& names) {
  std::vector<DirectoryEntry> entries;
  for (const std::string& name : names) {
    entries.push_back({.name = name, .type = FileType::kDirectory});
  }
  return entries;
}

TEST(RankDirectoryTest, HasOneToThreeNumbers) {
  EXPECT_THAT(ParseRankDirectory("mp_rank_01"), Optional(ElementsAre(1)));
  EXPECT_THAT(ParseRankDirectory("mp_rank_01_002_003"), Optional(ElementsAre(1, 2, 3)));
  for (const char* name : {"mp_rank_", "mp_rank_x", "mp_rank_00_", "mp_rank_00_model_states.pt",
                           "mp_rank_0_1_2_3", "mp_rank_-1", "mp_rank_99999999999999999999", "x"}) {
    EXPECT_EQ(ParseRankDirectory(name), std::nullopt) << name;
  }
}

TEST(RankDirectoryTest, TheSecondNumberIsOfTheExpertsIfThereIsOneStage) {
  const auto found =
      FindRankDirectories("/c", Directories({"mp_rank_00_001", "mp_rank_00_000"}), {.expert = 2});
  ASSERT_THAT(found, IsOk());
  ASSERT_EQ(found->size(), 2U);
  EXPECT_EQ((*found)[1].name, "mp_rank_00_001");
  EXPECT_EQ((*found)[1].at.expert, 1);
  EXPECT_EQ((*found)[1].at.pipeline, 0);
}

TEST(RankDirectoryTest, MissingOnesAreNamed) {
  const auto found = FindRankDirectories("/c", Directories({"mp_rank_00_000", "mp_rank_01_000"}),
                                         {.tensor = 2, .pipeline = 2});
  EXPECT_THAT(found, FailsWith(ErrorKind::kMissingFile));
  EXPECT_THAT(found.status().first().actual, HasSubstr("mp_rank_00_001, mp_rank_01_001"));
}

TEST(RankDirectoryTest, RefusesThoseOfAnotherJob) {
  EXPECT_THAT(FindRankDirectories("/c", Directories({"mp_rank_00", "mp_rank_01"}), {}),
              FailsWith(ErrorKind::kBadMetadata));
  EXPECT_THAT(FindRankDirectories("/c", Directories({"mp_rank_00", "mp_rank_0"}), {}),
              FailsWith(ErrorKind::kBadMetadata));
  for (const Sizes& sizes :
       {Sizes{.tensor = 0}, Sizes{.pipeline = -1}, Sizes{.tensor = 1 << 16, .expert = 2},
        Sizes{.expert = std::int64_t{1} << 62}}) {
    EXPECT_THAT(FindRankDirectories("/c", Directories({"mp_rank_00"}), sizes),
                FailsWith(ErrorKind::kBadMetadata));
  }
}

}  // namespace
}  // namespace ckpt::mp_rank
