// Which files of a directory are the checkpoint, by their names alone.
#include "formats/safetensors/internal/repository.h"

#include <memory>
#include <string>

#include <fmt/format.h>
#include <gmock/gmock.h>

#include "core/io/memory_storage.h"
#include "formats/safetensors/internal/sharding_info.h"
#include "tests/testing/matchers.h"

namespace ckpt::safetensors {
namespace {

using ::ckpt::testing::FailsWith;
using ::ckpt::testing::IsOk;
using ::testing::ElementsAre;
using ::testing::IsEmpty;

class RepositoryTest : public ::testing::Test {
 protected:
  RepositoryTest() : storage_(MakeMemoryStorage()) {
    EXPECT_THAT(storage_->MakeDirectories("/r"), IsOk());
  }

  void Add(const std::string& name, std::string_view text = "") {
    EXPECT_THAT(WriteSmallFile(*storage_, Path("/r") / name, AsBytes(text)), IsOk());
  }
  Result<RepositoryFiles> Find() { return FindRepositoryFiles(*storage_, "/r"); }

  std::unique_ptr<Storage> storage_;
};

TEST_F(RepositoryTest, TakesEveryFileWhoseNamesAnnounceNothing) {
  // Each lacks something of "-00001-of-00002": none makes the others missing.
  for (const char* name :
       {"a-0000x-of-00002.safetensors", "a-00001-of-x0002.safetensors",
        "a-00001-of-0002x.safetensors", "a-00001_of_00002.safetensors",
        "a_00001-of-00002.safetensors", "-00001-of-00002.safetensors",
        "shard-00001-model-00001-of-00002.safetensors", "a--0001-of-00002.safetensors"}) {
    Add(name);
  }
  const auto files = Find();
  ASSERT_THAT(files, IsOk());
  EXPECT_EQ(files->shards.size(), 8U);
  EXPECT_THAT(files->missing, IsEmpty());
}

TEST_F(RepositoryTest, PrefersNumberedFilesCalledModelElseTheFirstStem) {
  Add("b-00001-of-00001.safetensors");
  Add("c-00001-of-00001.safetensors");
  EXPECT_THAT(Find()->shards, ElementsAre("b-00001-of-00001.safetensors"));
  Add("model-00001-of-00001.safetensors");
  EXPECT_THAT(Find()->shards, ElementsAre("model-00001-of-00001.safetensors"));
  EXPECT_THAT(Find()->leftover,
              ElementsAre("b-00001-of-00001.safetensors", "c-00001-of-00001.safetensors"));
}

// As Transformers does: whoever saved shards once and one file later has the index of the first
// save left.
TEST_F(RepositoryTest, TakesTheSingleFileBeforeAnIndex) {
  Add("model.safetensors");
  Add("model-00001-of-00001.safetensors");
  Add("model.safetensors.index.json",
      R"({"weight_map": {"a": "model-00001-of-00001.safetensors", "b": "gone.safetensors"}})");
  const auto files = Find();
  ASSERT_THAT(files, IsOk());
  EXPECT_THAT(files->shards, ElementsAre("model.safetensors"));
  EXPECT_THAT(files->missing, IsEmpty());
  EXPECT_THAT(files->leftover, ElementsAre("model-00001-of-00001.safetensors"));
  EXPECT_FALSE(files->index.has_value());
}

TEST_F(RepositoryTest, FollowsAnIndexOfAnotherNameIfThereIsOnlyOne) {
  Add("a.safetensors");
  Add("b.safetensors");
  Add("adapter.safetensors.index.json", R"({"weight_map":{"w":"a.safetensors"}})");
  EXPECT_THAT(Find()->shards, ElementsAre("a.safetensors"));
  EXPECT_EQ(Find()->index_name, "adapter.safetensors.index.json");
  Add("zdapter.safetensors.index.json", R"({"weight_map":{"w":"b.safetensors"}})");
  EXPECT_THAT(Find()->shards, ElementsAre("a.safetensors", "b.safetensors"));
  EXPECT_EQ(Find()->index_name, "");
  Add("model.safetensors.index.json", R"({"weight_map":{"w":"b.safetensors"}})");
  EXPECT_THAT(Find()->shards, ElementsAre("b.safetensors"));
}

// Ranks of torch's distributed writer each have a file for every number, unless they have nothing.
TEST_F(RepositoryTest, NamesShardsThatOtherRanksHave) {
  const auto name_of = [](int rank, int number) {
    return fmt::format("shard-{:05}-model-{:05}-of-00002.safetensors", rank, number);
  };
  for (const int rank : {1, 2, 3}) {
    for (const int number : {1, 2}) Add(name_of(rank, number));
  }
  EXPECT_THAT(Find()->absent, IsEmpty());
  // The largest rank in one number, a rank in all numbers.
  for (const std::string& lost : {name_of(3, 1), name_of(2, 1), name_of(2, 2)}) {
    EXPECT_THAT(storage_->RemoveAll(Path("/r") / lost), IsOk());
  }
  const auto files = Find();
  ASSERT_THAT(files, IsOk());
  EXPECT_EQ(files->shards.size(), 3U);
  ASSERT_EQ(files->absent.size(), 1U);
  const AbsentShards& absent = files->absent.front();
  EXPECT_EQ(absent.ranks, 3U);
  EXPECT_EQ(absent.total, 2U);
  EXPECT_EQ(absent.count, 3U);
  EXPECT_THAT(absent.names, ElementsAre(name_of(2, 1), name_of(3, 1), name_of(2, 2)));
}

TEST_F(RepositoryTest, CountsAbsentShardsWithoutListingThem) {
  Add("shard-99999-model-00001-of-99999.safetensors");
  for (const char* other :
       {"shard-00000-model-00001-of-00001.safetensors", "shard-1-model-00001-of-00001.safetensors",
        "shard-00002-model-00002-of-00001.safetensors", "shard-00002-model.safetensors",
        "shard-00002.safetensors", "shard-0000x-model-00001-of-00001.safetensors"}) {
    Add(other);
  }
  const auto files = Find();
  ASSERT_THAT(files, IsOk());
  ASSERT_EQ(files->absent.size(), 1U);
  EXPECT_EQ(files->absent.front().count, 99999ULL * 99999 - 1);
  EXPECT_THAT(files->absent.front().names,
              ElementsAre("shard-00001-model-00001-of-99999.safetensors",
                          "shard-00002-model-00001-of-99999.safetensors",
                          "shard-00003-model-00001-of-99999.safetensors"));
}

TEST_F(RepositoryTest, LeavesVariantsOfTheSameStemOut) {
  Add("unet.fp16.safetensors");
  EXPECT_THAT(Find()->shards, ElementsAre("unet.fp16.safetensors")) << "there is no other one";
  Add("unet.safetensors");
  Add("unet.non_ema.safetensors");
  Add("unet.bf16-00001-of-00002.safetensors");
  Add("unet-00001-of-00002.fp8.safetensors");
  Add("vae.safetensors");
  EXPECT_THAT(Find()->shards, ElementsAre("unet.safetensors", "vae.safetensors"));
  EXPECT_THAT(Find()->leftover, ElementsAre("unet-00001-of-00002.fp8.safetensors",
                                            "unet.bf16-00001-of-00002.safetensors",
                                            "unet.fp16.safetensors", "unet.non_ema.safetensors"));
}

TEST_F(RepositoryTest, LeavesVariantsOfShardsOut) {
  Add("a-00001-of-00001.safetensors");
  Add("a.fp16-00001-of-00002.safetensors");
  Add("a.fp16.safetensors");
  EXPECT_THAT(Find()->shards, ElementsAre("a-00001-of-00001.safetensors"));
  Add("a.fp16.safetensors.index.json", R"({"weight_map":{"w":"a.fp16.safetensors"}})");
  Add("a.safetensors.index.fp16.json", R"({"weight_map":{"w":"a.fp16.safetensors"}})");
  EXPECT_THAT(Find()->shards, ElementsAre("a-00001-of-00001.safetensors"));
  EXPECT_EQ(Find()->index_name, "");
}

TEST_F(RepositoryTest, TakesVersionsAndNumbersForPartsOfTheStem) {
  Add("a-3.safetensors");
  Add("a-3.1.safetensors");
  EXPECT_THAT(Find()->shards, ElementsAre("a-3.1.safetensors", "a-3.safetensors"));
}

TEST_F(RepositoryTest, AnIndexOfNothingIsACheckpointOfNothing) {
  Add("model.safetensors.index.json", R"({"weight_map":{}})");
  const auto files = Find();
  ASSERT_THAT(files, IsOk());
  EXPECT_THAT(files->shards, IsEmpty());
}

TEST_F(RepositoryTest, LooksBelowShardedLast) {
  EXPECT_THAT(Find(), FailsWith(ErrorKind::kNotFound)) << "there is no such directory";
  Add("sharded");
  EXPECT_THAT(Find(), FailsWith(ErrorKind::kNotFound)) << "it is a file";
  EXPECT_THAT(storage_->RemoveAll("/r/sharded"), IsOk());
  EXPECT_THAT(storage_->MakeDirectories("/r/sharded"), IsOk());
  EXPECT_THAT(Find(), FailsWith(ErrorKind::kNotFound)) << "it is empty";
  Add("sharded/a.safetensors");
  EXPECT_THAT(Find()->shards, ElementsAre("sharded/a.safetensors"));
  Add("sharded/model.safetensors.index.json", "{");
  EXPECT_THAT(Find(), FailsWith(ErrorKind::kBadMetadata));
}

TEST(ShardingInfo, IsRefusedWhereItSaysAnythingTwiceOrNotAtAll) {
  EXPECT_THAT(ParseShardingInfo(R"({"w":{"other":[1],"saved_offsets":[2,3]}})", "f"), IsOk());
  const auto message = [](std::string_view json) {
    const Result<ShardingInfo> info = ParseShardingInfo(json, "f");
    EXPECT_THAT(info, FailsWith(ErrorKind::kBadMetadata)) << json;
    EXPECT_EQ(info.status().first().file, "f");
    return info.status().first().message;
  };
  EXPECT_EQ(message(R"({"w":{"saved_offsets":[0],"saved_offsets":[1]}})"), "saved_offsets twice");
  EXPECT_EQ(message(R"({"w":{"saved_offsets":[0]},"w":{"saved_offsets":[1]}})"),
            "tensor is listed twice");
  EXPECT_EQ(message(R"({"w":{}})"), "no saved_offsets");
  EXPECT_NE(message("{"), "");
}

}  // namespace
}  // namespace ckpt::safetensors
