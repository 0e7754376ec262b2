// Layers that predict further tokens: none is lost, wherever they go.
#include <algorithm>
#include <fstream>
#include <string>
#include <utility>
#include <vector>

#include <boost/filesystem/operations.hpp>
#include <gmock/gmock.h>

#include "converters/verbs/model_source.h"
#include "core/io/posix_storage.h"
#include "formats/registry/registry.h"
#include "formats/registry/stored_run.h"
#include "formats/safetensors/header.h"
#include "tests/converters/verbs/convert_fixture.h"

namespace ckpt {
namespace {

using testing::Content;
using testing::ConvertTest;
using testing::FailsWith;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using testing::IsOk;

class FurtherLayersTest : public ConvertTest {
 protected:
  // A copy of a golden repository, to be changed.
  Path CopyOf(const std::string& name) const {
    const Path copy = dir_.path() / "source";
    boost::filesystem::create_directories(copy);
    const auto files = ListRecursively(PosixStorage(), Golden(name));
    EXPECT_THAT(files, IsOk());
    for (const std::string& file : *files) {
      boost::filesystem::copy_file(Golden(name) / file, copy / file);
    }
    return copy;
  }
  static void Replace(const Path& file, const std::string& from, const std::string& to) {
    std::string content = Content(file);
    ASSERT_NE(content.find(from), std::string::npos);
    content.replace(content.find(from), from.size(), to);
    std::ofstream(file.string(), std::ios::binary) << content;
  }
  static bool HasKey(const Path& checkpoint, const std::string& key) {
    const auto opened = OpenCheckpoint(PosixStorage(), checkpoint);
    EXPECT_THAT(opened, IsOk());
    return opened.ok() && opened->source->index().FindTensor(key) != nullptr;
  }
  static std::string FurtherLayersOf(const Path& checkpoint) {
    const auto opened = OpenCheckpoint(PosixStorage(), checkpoint);
    EXPECT_THAT(opened, IsOk());
    if (!opened.ok()) return {};
    const auto args = ReadRunArgs(*opened);
    EXPECT_THAT(args, IsOk());
    return args.ok() ? layout::FormatValue(args->at("mtp_num_layers")) : std::string();
  }
  // To torch_dist, which it returns, and back, which must give the same files.
  Path ThereAndBack(const Path& source) const {
    ConvertOptions there = Between("hf", "torch_dist", source, "core");
    EXPECT_THAT(Convert(there), IsOk());
    ConvertOptions back = Between("torch_dist", "hf", there.target, "hf");
    back.to.choices["expert_layout"] = kOriginalChoice;
    EXPECT_THAT(Convert(back), IsOk());
    ExpectSameFiles(source, back.target);
    return there.target;
  }
};

TEST_F(FurtherLayersTest, ComeBackFromEveryFormatBitForBit) {
  const Path source = Golden("deepseekv3-mtp-bf16");
  for (const std::string format : {"fsdp_dtensor", "torch_dist", "fsdp2"}) {
    SCOPED_TRACE(format);
    ConvertOptions there = Between("hf", format, source, format);
    const auto report = Convert(there);
    ASSERT_THAT(report, IsOk());
    EXPECT_THAT(report->dropped, IsEmpty());
    ConvertOptions back = Between(format, "hf", there.target, format + "-back");
    back.to.choices["expert_layout"] = kOriginalChoice;
    const auto returned = Convert(back);
    ASSERT_THAT(returned, IsOk());
    for (const LeftOutEntry& entry : returned->dropped) {
      EXPECT_TRUE(entry.is_bookkeeping) << entry.key;
    }
    ExpectSameFiles(source, back.target);
  }
}

TEST_F(FurtherLayersTest, AreCalledAsTheLiveModulesAre) {
  for (const std::string inner : {"transformer_layer", "mtp_model_layer"}) {
    ConvertOptions there = ToFsdp(Golden("deepseekv3-mtp-bf16"));
    there.target = dir_.path() / inner;
    there.to.choices["further_names"] = inner;
    ASSERT_THAT(Convert(there), IsOk());
    EXPECT_TRUE(HasKey(there.target, "model.module.mtp.layers.0." + inner + ".mlp.router.weight"));
    EXPECT_EQ(FurtherLayersOf(there.target), "1");
    ConvertOptions back = ToHf(there.target);
    back.target = dir_.path() / (inner + "-back");
    ASSERT_THAT(Convert(back), IsOk());
    ExpectSameFiles(Golden("deepseekv3-mtp-bf16"), back.target);
  }
}

// Megatron's args alone say what the model is.
TEST_F(FurtherLayersTest, AreKnownFromTheArgs) {
  ConvertOptions there = Between("hf", "torch_dist", Golden("deepseekv3-mtp-bf16"), "core");
  ASSERT_THAT(Convert(there), IsOk());
  ASSERT_THAT(PosixStorage().RemoveAll(there.target / "hf_assets"), IsOk());
  const auto model = OpenModel(PosixStorage(), there.target / "release", {});
  ASSERT_THAT(model, IsOk());
  EXPECT_EQ(layout::FormatValue(model->config.at("num_nextn_predict_layers")), "1");
  EXPECT_FALSE(model->match.lacks_extra);
}

// Readers of published models want the copies of what they share, unless it came without.
TEST_F(FurtherLayersTest, HaveTheirCopiesIfTheirOriginIsNotPublished) {
  ConvertOptions there = Between("hf", "torch_dist", Golden("deepseekv3-mtp-bf16"), "core");
  ASSERT_THAT(Convert(there), IsOk());
  ASSERT_TRUE(boost::filesystem::remove(there.target / "release" / "ckptkit.json"));
  ConvertOptions back = Between("torch_dist", "hf", there.target, "hf");
  ASSERT_THAT(Convert(back), IsOk());
  for (const std::string key :
       {"model.layers.2.embed_tokens.weight", "model.layers.2.shared_head.head.weight"}) {
    EXPECT_TRUE(HasKey(back.target, key)) << key;
  }
}

TEST_F(FurtherLayersTest, HaveNoCopiesIfTheirOriginHasNone) {
  const Path source = CopyOf("deepseekv3-mtp-bf16");
  const Path file = source / "model.safetensors";
  const std::string content = Content(file);
  const auto opened = PosixStorage().Open(file);
  ASSERT_THAT(opened, IsOk());
  const auto header = safetensors::ReadHeader(**opened);
  ASSERT_THAT(header, IsOk());
  std::vector<safetensors::TensorEntry> tensors;
  std::string payload;
  for (safetensors::TensorEntry tensor : header->tensors) {
    if (tensor.name == "model.layers.2.embed_tokens.weight") continue;
    const std::size_t size = tensor.end - tensor.begin;
    const std::size_t begin = std::exchange(tensor.begin, payload.size());
    payload += content.substr(header->payload_offset + begin, size);
    tensor.end = payload.size();
    tensors.push_back(std::move(tensor));
  }
  ASSERT_EQ(tensors.size() + 1, header->tensors.size());
  Bytes bare = safetensors::SerializeHeader(header->metadata, tensors);
  Append(AsBytes(payload), bare);
  boost::filesystem::remove(file);
  ASSERT_THAT(WriteSmallFile(PosixStorage(), file, bare), IsOk());

  ThereAndBack(source);
}

// Transformers saves none of them, and keeps the key.
TEST_F(FurtherLayersTest, MayBeLackingWhateverTheConfigurationSays) {
  const Path source = CopyOf("qwen3-tied-bf16");
  Replace(source / "config.json", "\"num_hidden_layers\"",
          "\"num_nextn_predict_layers\": 1, \"num_hidden_layers\"");
  const Path there = ThereAndBack(source);
  EXPECT_FALSE(HasKey(there, "mtp.layers.0.enorm.weight"));
  EXPECT_EQ(FurtherLayersOf(there), "null");
}

TEST_F(FurtherLayersTest, MustBeWholeIfThereAreAny) {
  const Path source = CopyOf("deepseekv3-mtp-bf16");
  Replace(source / "model.safetensors", "model.layers.2.enorm.weight",
          "model.layers.2.anorm.weight");
  const auto report = Convert(ToFsdp(source));
  ASSERT_THAT(report, FailsWith(ErrorKind::kMissing));
  EXPECT_THAT(report.status().ToString(), HasSubstr("model.layers.2.enorm.weight"));
  EXPECT_THAT(report.status().ToString(), HasSubstr("model.layers.2.anorm.weight"));
}

TEST_F(FurtherLayersTest, CopiesOfWhatTheyShareMustBeTheSame) {
  for (const std::string key :
       {"model.layers.2.embed_tokens.weight", "model.layers.2.shared_head.head.weight"}) {
    SCOPED_TRACE(key);
    const Path file = CopyOf("deepseekv3-mtp-bf16") / "model.safetensors";
    const auto opened = PosixStorage().Open(file);
    ASSERT_THAT(opened, IsOk());
    const auto header = safetensors::ReadHeader(**opened);
    ASSERT_THAT(header, IsOk());
    const auto tensor = std::ranges::find(header->tensors, key, &safetensors::TensorEntry::name);
    ASSERT_NE(tensor, header->tensors.end());
    std::string content = Content(file);
    content[header->payload_offset + tensor->begin] ^= 1;
    std::ofstream(file.string(), std::ios::binary) << content;
    ConvertOptions options = ToFsdp(file.parent_path());
    options.verify = false;
    const auto report = Convert(options);
    ASSERT_THAT(report, FailsWith(ErrorKind::kValueMismatch));
    EXPECT_EQ(report.status().first().tensor, key);
    ASSERT_THAT(PosixStorage().RemoveAll(file.parent_path()), IsOk());
  }
}

}  // namespace
}  // namespace ckpt
