#include "formats/safetensors/internal/writer.h"

#include <cstddef>
#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <gmock/gmock.h>

#include "formats/safetensors/format.h"
#include "formats/safetensors/sharded_index.h"
#include "formats/weights_request.h"
#include "tests/testing/golden.h"
#include "tests/testing/matchers.h"

namespace ckpt::safetensors {
namespace {

using ckpt::testing::FailsWith;
using ckpt::testing::GoldenCases;
using ckpt::testing::GoldenDir;
using ckpt::testing::IsOk;

std::vector<std::string> NamesOf(const WritePlan& plan) {
  std::vector<std::string> names;
  for (const WriteFile& file : plan.files) names.push_back(file.name);
  return names;
}

// The keys in a file, by offset.
std::vector<std::string> KeysIn(const WritePlan& plan, std::uint32_t file) {
  std::vector<std::string> keys;
  for (const WriteItem& item : plan.items) {
    if (item.file == file) keys.push_back(plan.tensors[item.tensor].key);
  }
  return keys;
}

// Literals and items fill every file exactly.
void ExpectTiles(const WritePlan& plan) {
  std::vector<std::uint64_t> filled(plan.files.size(), 0);
  for (const WriteLiteral& literal : plan.literals) filled[literal.file] += literal.bytes.size();
  for (const WriteItem& item : plan.items) {
    EXPECT_EQ(item.offset_bytes, filled[item.file]);
    filled[item.file] += item.size_bytes;
  }
  for (std::size_t i = 0; i < filled.size(); ++i) EXPECT_EQ(filled[i], plan.files[i].size_bytes);
}

TEST(PlanSafetensors, WritesOneFileWithoutAnIndex) {
  const auto plan =
      PlanSafetensors({{"b", DType::kFloat32, {2}}, {"a", DType::kBfloat16, {3}}}, {});
  ASSERT_THAT(plan, IsOk());
  EXPECT_THAT(NamesOf(*plan), ::testing::ElementsAre("model.safetensors"));
  EXPECT_THAT(KeysIn(*plan, 0), ::testing::ElementsAre("b", "a"));  // wider dtypes first
  ExpectTiles(*plan);
  const std::string_view header = AsText(plan->literals[0].bytes).substr(8);
  EXPECT_THAT(std::string(header),
              ::testing::StartsWith(R"({"__metadata__":{"format":"pt"},"b":{"dtype":"F32")"));
}

TEST(PlanSafetensors, PacksLayersInTheirNaturalOrder) {
  const auto plan = PlanSafetensors({{"layers.10.w", DType::kUint8, {4}},
                                     {"layers.2.w", DType::kUint8, {4}},
                                     {"layers.1.w", DType::kUint8, {20}},
                                     {"head", DType::kUint8, {2}}},
                                    {.max_shard_bytes = 8});
  ASSERT_THAT(plan, IsOk());
  EXPECT_THAT(
      NamesOf(*plan),
      ::testing::ElementsAre("model-00001-of-00003.safetensors", "model-00002-of-00003.safetensors",
                             "model-00003-of-00003.safetensors", "model.safetensors.index.json"));
  EXPECT_THAT(KeysIn(*plan, 0), ::testing::ElementsAre("head"));
  EXPECT_THAT(KeysIn(*plan, 1), ::testing::ElementsAre("layers.1.w"));
  EXPECT_THAT(KeysIn(*plan, 2), ::testing::ElementsAre("layers.10.w", "layers.2.w"));
  ExpectTiles(*plan);
  const auto index = ParseShardedIndex(AsText(plan->literals[3].bytes), "index");
  ASSERT_THAT(index, IsOk());
  EXPECT_EQ(index->total_size, 30U);
  EXPECT_EQ(index->weight_map[3], (std::pair<std::string, std::string>(
                                      "layers.2.w", "model-00003-of-00003.safetensors")));
}

TEST(PlanSafetensors, MakesAsManyFilesAsAskedForOrOneATensor) {
  const std::vector<TargetTensor> tensors = {
      {"a", DType::kUint8, {100}}, {"b", DType::kUint8, {3}}, {"c", DType::kUint8, {0}},
      {"d", DType::kUint8, {60}},  {"e", DType::kUint8, {7}}, {"f", DType::kUint8, {55}}};
  for (const int files : {1, 2, 3, 4, 5, 6, 7, 100}) {
    const auto plan = PlanSafetensors(tensors, {.files = files});
    ASSERT_THAT(plan, IsOk());
    const std::size_t data_files = plan->files.size() - (files > 1 ? 1 : 0);
    EXPECT_EQ(data_files, std::min<std::size_t>(static_cast<std::size_t>(files), tensors.size()));
    for (std::uint32_t file = 0; file < data_files; ++file) {
      EXPECT_FALSE(KeysIn(*plan, file).empty());
    }
    ExpectTiles(*plan);
  }
  const auto halves = PlanSafetensors(tensors, {.files = 2});
  ASSERT_THAT(halves, IsOk());
  EXPECT_THAT(KeysIn(*halves, 0), ::testing::UnorderedElementsAre("a", "b", "c", "d"));
}

// The files of two tensors in `files` files.
std::vector<std::string> NamesOfPlan(int files, std::vector<std::string> original_files,
                                     std::vector<SideText> original_indexes = {}) {
  WeightsRequest request;
  request.tensors = {{"a", DType::kUint8, {4}}, {"b", DType::kUint8, {4}}};
  request.files = files;
  request.original_files = std::move(original_files);
  request.original_indexes = std::move(original_indexes);
  const auto planned = PlanWeights(std::move(request));
  EXPECT_THAT(planned, IsOk());
  return planned.ok() ? NamesOf(planned->plan) : std::vector<std::string>();
}

TEST(PlanWeightsTest, FilesAreCalledAsTheLibraryOfTheSourceLooksForThem) {
  using ::testing::UnorderedElementsAre;
  EXPECT_THAT(NamesOfPlan(1, {"adapter_model.safetensors"}),
              UnorderedElementsAre("adapter_model.safetensors"));
  EXPECT_THAT(NamesOfPlan(2, {"diffusion_pytorch_model-00001-of-00003.safetensors",
                              "diffusion_pytorch_model-00002-of-00003.safetensors"}),
              UnorderedElementsAre("diffusion_pytorch_model-00001-of-00002.safetensors",
                                   "diffusion_pytorch_model-00002-of-00002.safetensors",
                                   "diffusion_pytorch_model.safetensors.index.json"));
  for (const char* other : {"consolidated.safetensors", "adapter_models.safetensors"}) {
    EXPECT_THAT(NamesOfPlan(1, {other}), UnorderedElementsAre("model.safetensors")) << other;
  }
}

TEST(PlanWeightsTest, AnIndexThatIsNoLongerRightIsNotWrittenAgain) {
  using ::testing::UnorderedElementsAre;
  const SideText stale = {.name = "consolidated.safetensors.index.json",
                          .content = R"({"weight_map":{"a":"c-1.safetensors"}})"};
  const SideText broken = {.name = "x.safetensors.index.json", .content = "{"};
  const SideText right = {
      .name = "y.safetensors.index.json",
      .content = R"({"weight_map":{"a":"model.safetensors","b":"model.safetensors"}})"};
  EXPECT_THAT(NamesOfPlan(1, {}, {stale, broken, right}),
              UnorderedElementsAre("model.safetensors", "y.safetensors.index.json"));
}

TEST(PlanSafetensors, ListsEveryDtypeThatTheFormatLacks) {
  const auto plan = PlanSafetensors({{"ok", DType::kComplex64, {1}},
                                     {"c128", DType::kComplex128, {1}},
                                     {"c32", DType::kComplex32, {1}}},
                                    {});
  ASSERT_THAT(plan, FailsWith(ErrorKind::kUnsupported));
  ASSERT_EQ(plan.status().problems().size(), 2U);
  EXPECT_EQ(plan.status().problems()[1].tensor, "c32");
  EXPECT_EQ(plan.status().problems()[1].file, "model.safetensors");
  const WriterOptions options = {
      .shards = {{.file = "s", .metadata = std::nullopt, .tensors = {"c32"}}}};
  const auto shard = PlanSafetensors({{"c32", DType::kComplex32, {1}}}, options);
  ASSERT_THAT(shard, FailsWith(ErrorKind::kUnsupported));
  EXPECT_EQ(shard.status().first().file, "s");
}

TEST(PlanSafetensors, DoublesTheLastDimOfPackedFloat4) {
  const auto plan = PlanSafetensors({{"w", DType::kFloat4E2m1fnX2, {2, 3}}}, {});
  ASSERT_THAT(plan, IsOk());
  EXPECT_THAT(std::string(AsText(plan->literals[0].bytes)),
              ::testing::HasSubstr(R"("dtype":"F4","shape":[2,6],"data_offsets":[0,6])"));
}

TEST(PlanSafetensors, ListsEverythingThatAShardMapLeavesOpen) {
  const WriterOptions options = {
      .shards = {{.file = "s", .metadata = std::nullopt, .tensors = {"a", "a", "gone"}},
                 {.file = "../s", .metadata = std::nullopt, .tensors = {}}}};
  const auto plan = PlanSafetensors({{"a", DType::kInt8, {1}}, {"b", DType::kInt8, {1}}}, options);
  std::vector<ErrorKind> kinds;
  for (const Problem& problem : plan.status().problems()) kinds.push_back(problem.kind);
  EXPECT_THAT(kinds, ::testing::UnorderedElementsAre(ErrorKind::kAlreadyExists, ErrorKind::kMissing,
                                                     ErrorKind::kUnsafePath, ErrorKind::kUnmapped));
}

TEST(PlanSafetensors, RefusesTwoShardsOfOneName) {
  const WriterOptions options = {
      .shards = {{.file = "s", .metadata = std::nullopt, .tensors = {"a"}},
                 {.file = "s", .metadata = std::nullopt, .tensors = {}}}};
  const auto plan = PlanSafetensors({{"a", DType::kInt8, {1}}}, options);
  ASSERT_THAT(plan, FailsWith(ErrorKind::kAlreadyExists));
  EXPECT_EQ(plan.status().first().file, "s");
}

TEST(PlanSafetensors, NamesTheTensorWhoseSizeNoHeaderCanSay) {
  constexpr std::int64_t kHuge = std::int64_t{1} << 62;
  const auto plan = PlanSafetensors({{"packed", DType::kFloat4E2m1fnX2, {}},
                                     {"rows", DType::kFloat4E2m1fnX2, {kHuge}},
                                     {"bytes", DType::kFloat64, {kHuge}}},
                                    {});
  ASSERT_THAT(plan, FailsWith(ErrorKind::kUnsupported));
  ASSERT_EQ(plan.status().problems().size(), 3U);
  EXPECT_EQ(plan.status().problems()[0].tensor, "packed");
  for (const std::size_t i : {std::size_t{1}, std::size_t{2}}) {
    EXPECT_EQ(plan.status().problems()[i].kind, ErrorKind::kResource);
    EXPECT_EQ(plan.status().problems()[i].tensor, i == 1 ? "rows" : "bytes");
  }
}

TEST(PlanSafetensors, RefusesAFileWhoseSizeOverflows) {
  constexpr std::int64_t kMost = std::numeric_limits<std::int64_t>::max();
  const WriterOptions options = {
      .shards = {{.file = "s", .metadata = std::nullopt, .tensors = {"a", "b", "c"}}}};
  const auto plan = PlanSafetensors(
      {{"a", DType::kInt8, {kMost}}, {"b", DType::kInt8, {kMost}}, {"c", DType::kInt8, {kMost}}},
      options);
  ASSERT_THAT(plan, FailsWith(ErrorKind::kResource));
  EXPECT_EQ(plan.status().first().file, "s");
}

TEST(PlanSafetensors, RefusesAHeaderThatNoReaderAccepts) {
  const auto with_metadata = [](std::size_t bytes) {
    return PlanSafetensors({{"a", DType::kInt8, {1}}},
                           {.metadata = {{"k", std::string(bytes, 'x')}}});
  };
  const auto empty = with_metadata(0);
  ASSERT_THAT(empty, IsOk());
  const std::size_t frame = empty->literals[0].bytes.size() - kLengthBytes;
  EXPECT_THAT(with_metadata(kMaxHeaderBytes - frame), IsOk());
  EXPECT_THAT(with_metadata(kMaxHeaderBytes - frame + 8), FailsWith(ErrorKind::kResource));
}

TEST(PlanSafetensors, RefusesAKeyTwice) {
  EXPECT_THAT(PlanSafetensors({{"a", DType::kInt8, {1}}, {"a", DType::kInt8, {1}}}, {}),
              FailsWith(ErrorKind::kAlreadyExists));
}

// What transformers wrote, planned again from its own shard map: the same headers, byte for byte.
TEST(PlanSafetensors, RepeatsTheFilesOfTransformers) {
  const std::vector<std::string> names = GoldenCases("hf");
  ASSERT_FALSE(names.empty());
  for (const std::string& name : names) {
    SCOPED_TRACE(name);
    const Path directory = GoldenDir() / "hf" / name / "ckpt";
    const auto source = SafetensorsSource::Open(PosixStorage(), directory);
    ASSERT_THAT(source, IsOk());
    std::vector<TargetTensor> targets;
    for (const GlobalTensor& t : (*source)->index().tensors()) {
      targets.push_back({t.key, t.dtype, t.shape});
    }
    const auto plan =
        PlanSafetensors(targets, {.shards = (*source)->shards(), .write_index = false});
    ASSERT_THAT(plan, IsOk());
    ExpectTiles(*plan);
    for (const WriteLiteral& literal : plan->literals) {
      const auto file = PosixStorage().Open(directory / plan->files[literal.file].name);
      ASSERT_THAT(file, IsOk());
      EXPECT_EQ((*file)->size_bytes(), plan->files[literal.file].size_bytes);
      Bytes original(literal.bytes.size());
      ASSERT_THAT((*file)->ReadAt(0, original), IsOk());
      EXPECT_EQ(original, literal.bytes);
    }
  }
}

TEST(NaturallyLess, ComparesNumbersAsNumbers) {
  EXPECT_TRUE(NaturallyLess("l.2.w", "l.10.w"));
  EXPECT_FALSE(NaturallyLess("l.10.w", "l.2.w"));
  EXPECT_TRUE(NaturallyLess("a", "a.b"));
  EXPECT_FALSE(NaturallyLess("a.b", "a"));
  EXPECT_TRUE(NaturallyLess("l.9", "l.9.w"));
  EXPECT_FALSE(NaturallyLess("l.9.w", "l.9"));
  EXPECT_TRUE(NaturallyLess("l.1", "l.a"));
  EXPECT_TRUE(NaturallyLess("l.12", "l.13"));
  EXPECT_TRUE(NaturallyLess("l.01", "l.1") != NaturallyLess("l.1", "l.01"));
  EXPECT_FALSE(NaturallyLess("x", "x"));
}

}  // namespace
}  // namespace ckpt::safetensors
