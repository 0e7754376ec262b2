#include "formats/safetensors/source.h"

#include <map>
#include <memory>
#include <set>
#include <string>
#include <string_view>

#include <boost/filesystem/operations.hpp>
#include <fmt/format.h>
#include <gmock/gmock.h>

#include "core/base/hash.h"
#include "core/checkpoint/digest.h"
#include "core/checkpoint/validate.h"
#include "core/io/memory_storage.h"
#include "formats/safetensors/sharded_index.h"
#include "tests/testing/golden.h"
#include "tests/testing/matchers.h"
#include "tests/testing/temp_dir.h"

namespace ckpt::safetensors {
namespace {

using ckpt::testing::FailsWith;
using ckpt::testing::GoldenCase;
using ckpt::testing::GoldenCases;
using ckpt::testing::GoldenDir;
using ckpt::testing::IsOk;
using ckpt::testing::LoadGolden;

constexpr std::uint64_t kBudget = 1 << 20;

void ExpectHolds(const CheckpointSource& source, const GoldenCase& golden) {
  const CheckpointIndex& index = source.index();
  EXPECT_EQ(index.tensors().size(), golden.tensors.size());
  for (const auto& [key, expected] : golden.tensors) {
    const GlobalTensor* tensor = index.FindTensor(key);
    ASSERT_NE(tensor, nullptr) << key;
    EXPECT_EQ(DTypeName(tensor->dtype), expected.dtype) << key;
    EXPECT_EQ(tensor->shape, expected.shape) << key;
    EXPECT_THAT(DigestTensor(source, *tensor, HashAlgorithm::kSha256, kBudget),
                ckpt::testing::IsOkAndHolds(expected.sha256))
        << key;
  }
}

TEST(SafetensorsGolden, RepositoriesHoldWhatTransformersSaved) {
  const std::vector<std::string> names = GoldenCases("hf");
  ASSERT_FALSE(names.empty());
  for (const std::string& name : names) {
    SCOPED_TRACE(name);
    const GoldenCase golden = LoadGolden("hf", name);
    const auto source = OpenSafetensors(PosixStorage(), golden.path);
    ASSERT_THAT(source, IsOk());
    ExpectHolds(**source, golden);
    EXPECT_THAT(ValidateIndex(**source), ::testing::IsEmpty());
  }
}

TEST(SafetensorsGolden, FilesOfTorchsHuggingFaceWriterAreJoined) {
  int cases = 0;
  for (const std::string& name : GoldenCases("dcp")) {
    if (!name.starts_with("hf_")) continue;
    SCOPED_TRACE(name);
    const GoldenCase golden = LoadGolden("dcp", name);
    const auto source = OpenSafetensors(PosixStorage(), golden.path);
    ASSERT_THAT(source, IsOk());
    ExpectHolds(**source, golden);
    EXPECT_THAT(ValidateIndex(**source), ::testing::IsEmpty());
    ++cases;
  }
  EXPECT_GT(cases, 0);
}

TEST(SafetensorsGolden, FilesThatRanksOverwroteCoverNothing) {
  const GoldenCase golden = LoadGolden("dcp/broken", "hf_overwritten");
  const auto source = OpenSafetensors(PosixStorage(), golden.path);
  ASSERT_THAT(source, IsOk());
  std::set<std::string> found;
  for (const Problem& problem : ValidateIndex(**source)) {
    EXPECT_EQ(KindName(problem.kind), golden.kind);
    found.insert(problem.tensor);
  }
  EXPECT_THAT(found, ::testing::ElementsAreArray(golden.affected));
  for (const GlobalTensor& tensor : (*source)->index().tensors()) {
    EXPECT_THAT(DigestTensor(**source, tensor, HashAlgorithm::kSha256, kBudget),
                FailsWith(ErrorKind::kCoverage));
  }
}

TEST(SafetensorsGolden, ShardsAreDescribedWellEnoughToRepeatThem) {
  const auto source =
      SafetensorsSource::Open(PosixStorage(), GoldenDir() / "hf/qwen3moe-norm-bf16/ckpt");
  ASSERT_THAT(source, IsOk());
  ASSERT_EQ((*source)->shards().size(), 5U);
  const ShardLayout& shard = (*source)->shards()[0];
  EXPECT_EQ(shard.file, "model-00001-of-00005.safetensors");
  EXPECT_EQ(shard.metadata, (TextPairs{{"format", "pt"}}));
  EXPECT_FALSE(shard.tensors.empty());
  EXPECT_EQ((*source)->index_name(), kIndexFileName);
}

// A checkpoint in memory; every tensor is bytes 1, 2, 3, ….
class SafetensorsSourceTest : public ::testing::Test {
 protected:
  struct Tensor {
    std::string name;
    StoredDType dtype;
    Dims shape;
    std::uint64_t bytes;
  };

  SafetensorsSourceTest() : storage_(MakeMemoryStorage()) {
    EXPECT_THAT(storage_->MakeDirectories("/ckpt/sharded"), IsOk());
  }

  void WriteText(const std::string& name, std::string_view text) {
    EXPECT_THAT(WriteSmallFile(*storage_, Path("/ckpt") / name, AsBytes(text)), IsOk());
  }

  void Write(const std::string& name, const std::vector<Tensor>& tensors, TextPairs metadata = {}) {
    std::vector<TensorEntry> entries;
    std::uint64_t at = 0;
    for (const Tensor& t : tensors) {
      entries.push_back({t.name, t.dtype, t.shape, at, at + t.bytes});
      at += t.bytes;
    }
    Bytes file = SerializeHeader(metadata, entries);
    for (std::uint64_t i = 0; i < at; ++i) file.push_back(static_cast<std::byte>(i + 1));
    WriteText(name, AsText(file));
  }

  static Tensor Byte(const std::string& name) { return {name, StoredDType::kU8, {1}, 1}; }

  Result<std::unique_ptr<SafetensorsSource>> Open(const std::string& path = "/ckpt") {
    return SafetensorsSource::Open(*storage_, path);
  }

  std::vector<std::string> Keys(const CheckpointSource& source) {
    std::vector<std::string> keys;
    for (const GlobalTensor& tensor : source.index().tensors()) keys.push_back(tensor.key);
    return keys;
  }

  std::unique_ptr<Storage> storage_;
};

MATCHER_P3(IsProblem, kind, tensor, file, std::string(KindName(kind)) + " of " + tensor) {
  *result_listener << Describe(arg);
  return arg.kind == kind && arg.tensor == tensor && arg.file == file;
}

TEST_F(SafetensorsSourceTest, ReportsWhatTheIndexNamesInVain) {
  Write("x-1.safetensors", {Byte("a"), Byte("extra")});
  Write("other.safetensors", {Byte("z")});
  WriteText(
      "model.safetensors.index.json",
      R"({"weight_map":{"a":"x-1.safetensors","b":"x-1.safetensors","c":"x-2.safetensors"}})");
  const auto source = Open();
  ASSERT_THAT(source, IsOk());
  EXPECT_THAT(
      (*source)->index().problems(),
      ::testing::UnorderedElementsAre(IsProblem(ErrorKind::kMissing, "b", "x-1.safetensors"),
                                      IsProblem(ErrorKind::kMissingFile, "c", "x-2.safetensors"),
                                      IsProblem(ErrorKind::kLeftover, "extra", "x-1.safetensors"),
                                      IsProblem(ErrorKind::kLeftover, "", "other.safetensors")));
  EXPECT_THAT(Keys(**source), ::testing::ElementsAre("a", "extra"));
}

TEST_F(SafetensorsSourceTest, ReadsNumberedShardsWithoutAnIndex) {
  Write("model-00001-of-00002.safetensors", {Byte("a")});
  Write("model-00002-of-00002.safetensors", {Byte("b")});
  Write("model.fp16-00001-of-00001.safetensors", {Byte("a")});
  const auto source = Open();
  ASSERT_THAT(source, IsOk());
  EXPECT_THAT(Keys(**source), ::testing::ElementsAre("a", "b"));
}

TEST_F(SafetensorsSourceTest, MissesANumberedShard) {
  Write("model-00001-of-00002.safetensors", {Byte("a")});
  const auto source = Open();
  ASSERT_THAT(source, FailsWith(ErrorKind::kMissingFile));
  EXPECT_EQ(source.status().first().file, "model-00002-of-00002.safetensors");
}

TEST_F(SafetensorsSourceTest, PrefersTheWholeModelOverOtherFiles) {
  Write("model.safetensors", {Byte("a")});
  Write("adapter_model.safetensors", {Byte("lora")});
  const auto source = Open();
  ASSERT_THAT(source, IsOk());
  EXPECT_THAT(Keys(**source), ::testing::ElementsAre("a"));
  EXPECT_THAT(
      (*source)->index().problems(),
      ::testing::ElementsAre(IsProblem(ErrorKind::kLeftover, "", "adapter_model.safetensors")));
}

TEST_F(SafetensorsSourceTest, FallsBackToTheShardsOfAFailedConsolidation) {
  Write("sharded/shard-00001-model-00001-of-00001.safetensors", {{"w", StoredDType::kU8, {2}, 2}},
        {{"DCP_SHARDING_INFO", R"({"w": {"saved_offsets": [0]}})"}});
  Write("sharded/shard-00002-model-00001-of-00001.safetensors", {{"w", StoredDType::kU8, {1}, 1}},
        {{"DCP_SHARDING_INFO", R"({"w": {"saved_offsets": [2]}})"}});
  const auto source = Open();
  ASSERT_THAT(source, IsOk());
  EXPECT_EQ((*source)->index().tensors()[0].shape, (Dims{3}));
  EXPECT_THAT(ValidateIndex(**source), ::testing::IsEmpty());
}

TEST_F(SafetensorsSourceTest, AMissingPieceLeavesAHole) {
  Write("shard-00002-model-00001-of-00001.safetensors", {{"w", StoredDType::kU8, {1}, 1}},
        {{"DCP_SHARDING_INFO", R"({"w": {"saved_offsets": [2]}})"}});
  const auto source = Open();
  ASSERT_THAT(source, IsOk());
  EXPECT_THAT(
      ValidateIndex(**source),
      ::testing::UnorderedElementsAre(
          IsProblem(ErrorKind::kCoverage, "w", ""),
          IsProblem(ErrorKind::kMissingFile, "", "shard-00001-model-00001-of-00001.safetensors")));
}

// Then what is left of a tensor looks whole.
TEST_F(SafetensorsSourceTest, AMissingLastPieceIsAWarning) {
  const TextPairs first = {{"DCP_SHARDING_INFO", R"({"w": {"saved_offsets": [0]}})"}};
  const TextPairs second = {{"DCP_SHARDING_INFO", R"({"v": {"saved_offsets": [2]}})"}};
  const TextPairs third = {{"DCP_SHARDING_INFO", R"({"v": {"saved_offsets": [0]}})"}};
  Write("shard-00001-model-00001-of-00002.safetensors", {{"w", StoredDType::kU8, {2}, 2}}, first);
  Write("shard-00001-model-00002-of-00002.safetensors", {{"v", StoredDType::kU8, {2}, 2}}, third);
  Write("shard-00002-model-00002-of-00002.safetensors", {{"v", StoredDType::kU8, {1}, 1}}, second);
  const auto source = Open();
  ASSERT_THAT(source, IsOk());
  EXPECT_EQ((*source)->index().FindTensor("w")->shape, (Dims{2}));
  const std::vector<Problem> problems = ValidateIndex(**source);
  ASSERT_EQ(problems.size(), 1U);
  EXPECT_EQ(problems[0].severity, Severity::kWarning);
  EXPECT_EQ(problems[0].kind, ErrorKind::kMissingFile);
  EXPECT_EQ(problems[0].file, "shard-00002-model-00001-of-00002.safetensors");
  EXPECT_EQ(problems[0].expected, "2 files of each of 2 ranks");
  EXPECT_EQ(problems[0].actual, "no shard-00002-model-00001-of-00002.safetensors");
}

TEST_F(SafetensorsSourceTest, RefusesImpossiblePieces) {
  Write("shard-00001-model-00001-of-00001.safetensors",
        {Byte("huge"), Byte("negative"), Byte("dims")},
        {{"DCP_SHARDING_INFO", R"({"huge": {"saved_offsets": [9223372036854775807]},
          "negative": {"saved_offsets": [-1]}, "dims": {"saved_offsets": [0, 0]}})"}});
  const auto source = Open();
  ASSERT_THAT(source, IsOk());
  const std::string file = "shard-00001-model-00001-of-00001.safetensors";
  EXPECT_THAT((*source)->index().problems(),
              ::testing::UnorderedElementsAre(IsProblem(ErrorKind::kOutOfRange, "huge", file),
                                              IsProblem(ErrorKind::kOutOfRange, "negative", file),
                                              IsProblem(ErrorKind::kBadMetadata, "dims", file)));
}

TEST_F(SafetensorsSourceTest, RefusesPiecesOfDifferentTensors) {
  const auto write_piece = [this](int number, std::vector<Tensor> tensors, const char* info) {
    Write("shard-0000" + std::to_string(number) + "-model-00001-of-00001.safetensors", tensors,
          {{"DCP_SHARDING_INFO", info}});
  };
  const Tensor bytes = {"dtype", StoredDType::kU8, {1}, 1};
  const Tensor dims = {"dims", StoredDType::kU8, {1}, 1};
  const Tensor whole = {"whole", StoredDType::kU8, {1}, 1};
  const Tensor joined = {"joined", StoredDType::kU8, {1}, 1};
  const char* all = R"({"dtype":{"saved_offsets":[0]},"dims":{"saved_offsets":[0]},
                        "whole":{"saved_offsets":[0]}})";
  write_piece(1, {bytes, dims, whole, joined}, all);
  write_piece(
      2,
      {{"dtype", StoredDType::kI8, {1}, 1}, {"dims", StoredDType::kU8, {1, 1}, 1}, whole, joined},
      R"({"dtype":{"saved_offsets":[1]},"dims":{"saved_offsets":[1,0]},
                     "joined":{"saved_offsets":[1]}})");
  const auto source = Open();
  ASSERT_THAT(source, IsOk());
  const std::string file = "shard-00002-model-00001-of-00001.safetensors";
  EXPECT_THAT((*source)->index().problems(),
              ::testing::UnorderedElementsAre(IsProblem(ErrorKind::kDtypeMismatch, "dtype", file),
                                              IsProblem(ErrorKind::kShapeMismatch, "dims", file),
                                              IsProblem(ErrorKind::kOverlap, "whole", file),
                                              IsProblem(ErrorKind::kOverlap, "joined", file)));
}

TEST_F(SafetensorsSourceTest, KeepsTheLast256FilesOpen) {
  const auto name_of = [](int i) { return fmt::format("model-{:05d}-of-00260.safetensors", i); };
  for (int i = 1; i <= 260; ++i) Write(name_of(i), {Byte(fmt::format("w{:03d}", i))});
  const auto source = Open();
  ASSERT_THAT(source, IsOk());
  const auto locate = [&](int i) {
    const GlobalTensor& tensor = (*source)->index().tensors()[static_cast<std::size_t>(i - 1)];
    return (*source)->Locate(tensor, (*source)->index().chunks(tensor)[0]);
  };
  EXPECT_THAT(locate(260), IsOk());
  // The last ones are held open; of the others the source says what became of them.
  for (const int i : {1, 2, 3, 260})
    EXPECT_THAT(storage_->RemoveAll("/ckpt/" + name_of(i)), IsOk());
  EXPECT_THAT(locate(260), IsOk());
  EXPECT_THAT(locate(2), FailsWith(ErrorKind::kMissingFile));
  EXPECT_THAT((*source)->FileSize(1), FailsWith(ErrorKind::kMissingFile));
  EXPECT_THAT((*source)->FileSize(3), IsOk());
  WriteText(name_of(3), "short");
  const auto cut = locate(3);
  EXPECT_THAT(cut, FailsWith(ErrorKind::kTruncated));
  EXPECT_EQ(cut.status().first().tensor, "w003");
  EXPECT_THAT(storage_->MakeDirectories("/ckpt/" + name_of(1)), IsOk());
  EXPECT_THAT(locate(1), FailsWith(ErrorKind::kIo));
}

TEST_F(SafetensorsSourceTest, RefusesATensorThatIsInTwoFiles) {
  Write("a.safetensors", {Byte("w")});
  Write("b.safetensors", {Byte("w")});
  const auto source = Open();
  ASSERT_THAT(source, IsOk());
  EXPECT_THAT((*source)->index().problems(),
              ::testing::ElementsAre(IsProblem(ErrorKind::kOverlap, "w", "b.safetensors")));
}

TEST_F(SafetensorsSourceTest, SkipsDtypesThatTorchLacks) {
  Write("model.safetensors", {Byte("a"), {"six", StoredDType::kF6E2M3, {4}, 3}});
  const auto source = Open();
  ASSERT_THAT(source, IsOk());
  EXPECT_THAT(Keys(**source), ::testing::ElementsAre("a"));
  EXPECT_THAT(
      (*source)->index().problems(),
      ::testing::ElementsAre(IsProblem(ErrorKind::kUnsupported, "six", "model.safetensors")));
}

TEST_F(SafetensorsSourceTest, CountsPackedFloat4AsBytes) {
  Write("model.safetensors", {{"w", StoredDType::kF4, {2, 4}, 4}});
  const auto source = Open("/ckpt/model.safetensors");
  ASSERT_THAT(source, IsOk());
  const GlobalTensor& tensor = (*source)->index().tensors()[0];
  EXPECT_EQ(tensor.dtype, DType::kFloat4E2m1fnX2);
  EXPECT_EQ(tensor.shape, (Dims{2, 2}));
  EXPECT_THAT(
      DigestTensor(**source, tensor, HashAlgorithm::kSha256, kBudget),
      ckpt::testing::IsOkAndHolds(HashHex(HashAlgorithm::kSha256, AsBytes("\x01\x02\x03\x04"))));
}

TEST_F(SafetensorsSourceTest, NamesEveryDamagedFile) {
  Write("model-00001-of-00002.safetensors", {Byte("a")});
  WriteText("model-00002-of-00002.safetensors", "short");
  const auto source = Open();
  ASSERT_THAT(source, FailsWith(ErrorKind::kTruncated));
  EXPECT_EQ(source.status().first().file, "/ckpt/model-00002-of-00002.safetensors");
}

TEST_F(SafetensorsSourceTest, RefusesADirectoryWithoutWeights) {
  EXPECT_THAT(Open(), FailsWith(ErrorKind::kNotFound));
  EXPECT_THAT(Open("/nowhere"), FailsWith(ErrorKind::kNotFound));
}

TEST_F(SafetensorsSourceTest, RefusesAnIndexThatLeavesTheDirectory) {
  WriteText("model.safetensors.index.json", R"({"weight_map":{"a":"../../etc/passwd"}})");
  EXPECT_THAT(Open(), FailsWith(ErrorKind::kUnsafePath));
}

TEST(SafetensorsSource, FollowsTheLinksOfAHubCache) {
  const ckpt::testing::TempDir temp;
  const Path snapshot = temp.path() / "models--org--name/snapshots/0123";
  const Path blobs = temp.path() / "models--org--name/blobs";
  boost::filesystem::create_directories(snapshot);
  boost::filesystem::create_directories(blobs);
  Bytes file = SerializeHeader(std::nullopt, {{"w", StoredDType::kU8, {1}, 0, 1}});
  file.push_back(std::byte{7});
  ASSERT_THAT(WriteSmallFile(PosixStorage(), blobs / "abc", file), IsOk());
  boost::filesystem::create_symlink("../../blobs/abc", snapshot / "model.safetensors");
  const auto source = OpenSafetensors(PosixStorage(), snapshot);
  ASSERT_THAT(source, IsOk());
  EXPECT_THAT(
      DigestTensor(**source, (*source)->index().tensors()[0], HashAlgorithm::kSha256, kBudget),
      ckpt::testing::IsOkAndHolds(HashHex(HashAlgorithm::kSha256, AsBytes("\x07"))));
}

TEST(ShardedIndex, RepeatsTheFilesOfTransformers) {
  int files = 0;
  for (const std::string& name : GoldenCases("hf")) {
    const Path path = GoldenDir() / "hf" / name / "ckpt" / std::string(kIndexFileName);
    const auto text = ReadSmallFile(PosixStorage(), path, 1 << 20);
    if (!text.ok()) continue;
    const auto index = ParseShardedIndex(*text, "index");
    ASSERT_THAT(index, IsOk());
    // One case was written by another script, without the line feed.
    EXPECT_EQ(SerializeShardedIndex(*index), text->ends_with('\n') ? *text : *text + "\n") << name;
    ++files;
  }
  EXPECT_GT(files, 0);
}

TEST(ShardedIndex, ToleratesOddMetadataButNoDoubleTensor) {
  const auto index = ParseShardedIndex(
      R"({"metadata":{"total_size":1.5e9,"x":[1,{"y":null}]},"weight_map":{"a":"f"}})", "i");
  ASSERT_THAT(index, IsOk());
  EXPECT_EQ(index->total_size, std::nullopt);
  EXPECT_THAT(ParseShardedIndex(R"({"weight_map":{"a":"f","a":"g"}})", "i"),
              FailsWith(ErrorKind::kBadMetadata));
  EXPECT_THAT(ParseShardedIndex("{}", "i"), FailsWith(ErrorKind::kBadMetadata));
  EXPECT_THAT(ParseShardedIndex(R"({"weight_map":{"a":"f"},"weight_map":{"b":"f"}})", "i"),
              FailsWith(ErrorKind::kBadMetadata));
}

TEST_F(SafetensorsSourceTest, WhatHeadersSayBesidesAreObjects) {
  Write("a.safetensors", {{"a", StoredDType::kU8, {1}, 1}},
        {{"format", "pt"}, {"note", "\"x\""}, {"part", "1"}});
  Write("b.safetensors", {{"b", StoredDType::kU8, {1}, 1}},
        {{"DCP_VERSION", "1.0"}, {"note", "\"x\""}, {"part", "2"}});
  const auto source = OpenSafetensors(*storage_, "/ckpt");
  ASSERT_THAT(source, IsOk());
  std::map<std::string, std::string> shown;
  for (const ObjectEntry& object : (*source)->index().objects()) {
    shown[object.key] = (*source)->ReadObject(object).value().json;
  }
  EXPECT_EQ(shown,
            (std::map<std::string, std::string>{{"__metadata__.note", R"("\"x\"")"},
                                                {"a.safetensors.__metadata__.part", R"("1")"},
                                                {"b.safetensors.__metadata__.part", R"("2")"}}));
  EXPECT_THAT((*source)->ReadObject({.key = "__metadata__.format"}),
              FailsWith(ErrorKind::kNotFound));
}

}  // namespace
}  // namespace ckpt::safetensors
