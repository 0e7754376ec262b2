#include "formats/torch_dist/internal/writer.h"

#include <algorithm>
#include <set>
#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "core/checkpoint/validate.h"
#include "core/io/memory_storage.h"
#include "formats/format.h"
#include "formats/megatron/plain_pickle.h"
#include "formats/torch_dist/format.h"
#include "formats/torch_dist/internal/source.h"
#include "tests/formats/torch_dist/planned_files.h"
#include "tests/testing/matchers.h"

namespace ckpt::torch_dist {
namespace {

using ::testing::ElementsAre;
using testing::FailsWith;
using testing::IsOk;

WeightsRequest Request(std::string_view generation = {}) {
  WeightsRequest request;
  request.tensors = {{.key = "w", .dtype = DType::kFloat32, .shape = {2, 3}}};
  request.objects = {{.key = "a._extra_state", .grid = {}},
                     {.key = "b._extra_state", .grid = {2, 12}}};
  if (!generation.empty()) request.forms["torch-dist-generation"] = generation;
  request.side_files = {{.from = "/model/config.json", .name = "config.json"}};
  request.run_args = []() -> Result<megatron::NamedValues> {
    return megatron::NamedValues{{"num_layers", layout::Value(std::int64_t{2})}};
  };
  return request;
}

std::set<std::string> NamesOf(const WritePlan& plan) {
  std::set<std::string> names;
  for (const WriteFile& file : plan.files) names.insert(file.name);
  for (const WriteCopy& copy : plan.copies) names.insert(copy.name);
  return names;
}

// The planned files with zeros for the tensors' elements and what frames them.
std::unique_ptr<Storage> Write(const WritePlan& plan) {
  std::unique_ptr<Storage> storage = MakeMemoryStorage();
  for (std::uint32_t f = 0; f < plan.files.size(); ++f) {
    testing::WritePlannedFile(plan, f, *storage);
  }
  return storage;
}

std::string TextOf(Storage& storage, const Path& path) {
  const auto text = ReadSmallFile(storage, path, 1 << 20);
  EXPECT_THAT(text, IsOk());
  return text.ok() ? *text : "";
}

TEST(TorchDistWriterTest, MakesARootThatOldLoadersTake) {
  const auto planned = PlanWeights(kFormat, Request());
  ASSERT_THAT(planned, IsOk());
  EXPECT_EQ(planned->checkpoint_directory, "release");
  EXPECT_THAT(
      NamesOf(planned->plan),
      ElementsAre("latest_checkpointed_iteration.txt", "release/.metadata", "release/__0_0.distcp",
                  "release/common.pt", "release/hf_assets/config.json", "release/metadata.json"));
  const auto storage = Write(planned->plan);
  EXPECT_EQ(TextOf(*storage, "/run/latest_checkpointed_iteration.txt"), "release");
  EXPECT_EQ(TextOf(*storage, "/run/release/metadata.json"),
            "{\"sharded_backend\": \"torch_dist\", \"sharded_backend_version\": 1, "
            "\"common_backend\": \"torch\", \"common_backend_version\": 1}");
}

// Loaders since 0.19 drop fields that they do not know; older ones refuse a key that they did not
// ask for.
TEST(TorchDistWriterTest, MakesTheCommonStateAnObjectOnRequest) {
  const auto planned = PlanWeights(kFormat, Request("0.19"));
  ASSERT_THAT(planned, IsOk());
  EXPECT_FALSE(NamesOf(planned->plan).contains("release/common.pt"));
  const auto storage = Write(planned->plan);
  EXPECT_EQ(TextOf(*storage, "/run/release/metadata.json"),
            "{\"sharded_backend\": \"torch_dist\", \"sharded_backend_version\": 1}");
}

class GenerationTest : public ::testing::TestWithParam<std::string_view> {};
INSTANTIATE_TEST_SUITE_P(All, GenerationTest, ::testing::ValuesIn(kGenerations),
                         [](const auto& test) { return test.index == 0 ? "Compat" : "Since019"; });

TEST_P(GenerationTest, IsReadAsItWasAskedFor) {
  const auto planned = PlanWeights(kFormat, Request(GetParam()));
  ASSERT_THAT(planned, IsOk());
  const auto storage = Write(planned->plan);
  const auto source = Source::Open(*storage, "/run/release");
  ASSERT_THAT(source, IsOk());
  const CheckpointIndex& index = (*source)->index();
  ASSERT_EQ(index.tensors().size(), 1U);
  EXPECT_EQ(index.tensors()[0].key, "w");
  // One object alone, a grid of 24, the common state.
  EXPECT_EQ(index.objects().size(), 26U);
  for (const char* key : {"a._extra_state/shard_0_1", "b._extra_state/shard_0.0_2.12",
                          "b._extra_state/shard_1.11_2.12"}) {
    const ObjectEntry* const object = index.FindObject(key);
    ASSERT_NE(object, nullptr) << key;
    const auto value = (*source)->ReadObject(*object);
    ASSERT_THAT(value, IsOk());
    EXPECT_EQ(value->json, "[null]");
  }
  const auto common = (*source)->ReadObject(*index.FindObject(kCommonKey));
  ASSERT_THAT(common, IsOk());
  EXPECT_EQ(common->json,
            "{\"args\":{\"$object\":{\"class\":\"argparse.Namespace\",\"state\":{\"num_layers\":2}}"
            "},\"checkpoint_version\":3.0,\"iteration\":0,\"content_metadata\":"
            "{\"singleton_local_shards\":false,\"chained_optim_avoid_prefix\":true}}");
}

TEST(TorchDistWriterTest, RefusesAnUnknownGeneration) {
  const auto planned = PlanWeights(kFormat, Request("0.13"));
  ASSERT_THAT(planned, FailsWith(ErrorKind::kUsage));
  EXPECT_EQ(planned.status().first().expected, "compat or 0.19");
}

TEST(TorchDistWriterTest, RefusesAGridOfMoreObjectsThanAnyModelHas) {
  for (const Dims& grid : {Dims{1 << 11, 1 << 12}, Dims{std::int64_t{1} << 40, 1 << 30}}) {
    WeightsRequest request = Request();
    request.objects.push_back({.key = "c", .grid = grid});
    const auto planned = PlanWeights(kFormat, std::move(request));
    ASSERT_THAT(planned, FailsWith(ErrorKind::kResource));
    EXPECT_EQ(planned.status().first().tensor, "c");
  }
}

// A run that Megatron goes on with as it was asks for the optimizer that it had.
TEST(WarnOfOptimizerTest, TellsOfAnOptimizerThatMegatronWouldNotFind) {
  TrainingRun run;
  EXPECT_TRUE(WarnOfOptimizer(run, {}).empty());
  run.args = {{"use_distributed_optimizer", layout::Value(true)}};
  run.rank_sizes = {{"expert_model_parallel_size", layout::Value(std::int64_t{1})}};
  EXPECT_TRUE(WarnOfOptimizer(run, {}).empty());
  run.args.front().second = layout::Value(false);
  run.rank_sizes.front().second = layout::Value(std::int64_t{2});
  EXPECT_EQ(WarnOfOptimizer(run, {}).size(), 2U);
  EXPECT_EQ(WarnOfOptimizer(run, {{"expert-optimizer", "joint"}}).size(), 1U) << "it was asked for";
  EXPECT_EQ(WarnOfOptimizer(run, {{"optimizer-form", "dp_reshardable"}}).size(), 1U);
}

}  // namespace
}  // namespace ckpt::torch_dist
