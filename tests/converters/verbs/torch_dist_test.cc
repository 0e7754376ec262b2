// Models as Megatron-Core's torch_dist, both ways.
#include <algorithm>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include <boost/filesystem/operations.hpp>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <gmock/gmock.h>

#include "converters/config/megatron_args.h"
#include "core/checkpoint/digest.h"
#include "core/layout/flatten_json.h"
#include "formats/registry/stored_run.h"
#include "tests/converters/verbs/convert_fixture.h"

namespace ckpt {
namespace {

using layout::Configuration;
using testing::Content;
using testing::ConvertTest;
using testing::FailsWith;
using ::testing::HasSubstr;
using testing::IsOk;
using ::testing::Not;

struct Stored {
  std::string dtype;
  Dims shape;
  std::string sha256;
  friend bool operator==(const Stored&, const Stored&) = default;
};
void PrintTo(const Stored& stored, std::ostream* os) {
  *os << stored.dtype << FormatDims(stored.shape) << " " << stored.sha256;
}

class TorchDistTest : public ConvertTest {
 protected:
  ConvertOptions ToTorchDist(const Path& source, const std::string& from = "hf") const {
    return Between(from, "torch_dist", source, "torch_dist");
  }

  static bool IsOfModel(std::string_view key) {
    return !key.starts_with("optimizer.") && !key.starts_with("chained_");
  }

  // Every tensor of the model, as the software says that wrote the checkpoint.
  static std::map<std::string, Stored> TensorsOf(const testing::GoldenCase& golden) {
    std::map<std::string, Stored> tensors;
    for (const auto& [key, tensor] : golden.tensors) {
      if (IsOfModel(key)) tensors[key] = {tensor.dtype, tensor.shape, tensor.sha256};
    }
    return tensors;
  }

  // Every tensor of the model in the checkpoint.
  static std::map<std::string, Stored> TensorsOf(const Path& path) {
    std::map<std::string, Stored> tensors;
    const auto opened = OpenCheckpoint(PosixStorage(), path);
    EXPECT_THAT(opened, IsOk());
    if (!opened.ok()) return tensors;
    for (const GlobalTensor& tensor : opened->source->index().tensors()) {
      if (!IsOfModel(tensor.key)) continue;
      const auto digest =
          DigestTensor(*opened->source, tensor, HashAlgorithm::kSha256, std::uint64_t{1} << 20);
      EXPECT_THAT(digest, IsOk());
      tensors[tensor.key] = {std::string(DTypeName(tensor.dtype)), tensor.shape, digest.value()};
    }
    return tensors;
  }

  // The arguments that the run stored, and those that the script which made it gave to
  // Megatron-Core without storing them. Empty if there is no model.
  static Result<Configuration> ArgsOf(const testing::GoldenCase& golden) {
    CKPT_ASSIGN_OR_RETURN(const OpenedCheckpoint opened,
                          OpenCheckpoint(PosixStorage(), golden.path));
    CKPT_ASSIGN_OR_RETURN(Configuration args, ReadRunArgs(opened));
    CKPT_ASSIGN_OR_RETURN(const Configuration described,
                          layout::FlattenJson(Content(golden.directory / "expected.json"), ""));
    constexpr std::string_view kOfModel = "model.config.";
    for (const auto& [name, value] : described) {
      if (name.starts_with(kOfModel)) args.emplace(name.substr(kOfModel.size()), value);
    }
    return args;
  }

  // The directory of a config.json that says the same.
  Path WriteConfig(const Configuration& config) const {
    const Path directory = dir_.path() / "assets";
    std::vector<std::string> members;
    for (const auto& [name, value] : config) {
      members.push_back(fmt::format("\"{}\": {}", name, layout::FormatValue(value)));
    }
    const std::string json = fmt::format("{{{}}}", fmt::join(members, ", "));
    boost::filesystem::create_directories(directory);
    boost::filesystem::remove(directory / "config.json");
    EXPECT_THAT(WriteSmallFile(PosixStorage(), directory / "config.json", AsBytes(json)), IsOk());
    return directory;
  }

  static std::vector<std::string> ObjectsOf(const Path& path) {
    std::vector<std::string> keys;
    const auto opened = OpenCheckpoint(PosixStorage(), path);
    EXPECT_THAT(opened, IsOk());
    if (!opened.ok()) return keys;
    for (const ObjectEntry& object : opened->source->index().objects()) {
      if (object.key.find("._extra_state/") != std::string::npos) keys.push_back(object.key);
    }
    return keys;
  }
};

// Stacked, per layer, with tied heads, experts and biases.
TEST_F(TorchDistTest, HoldsEveryGoldenModelAndGivesItBack) {
  for (const std::string& name : testing::GoldenCases("hf")) {
    SCOPED_TRACE(name);
    const Path source = Golden(name);
    for (const char* generation : {"compat", "0.19"}) {
      ConvertOptions options = ToTorchDist(source);
      options.overwrite = true;
      options.to.forms["torch-dist-generation"] = generation;
      const auto prepared = PrepareConversion(PosixStorage(), options);
      ASSERT_THAT(prepared, IsOk());
      const auto report = RunConversion(PosixStorage(), *prepared, options);
      ASSERT_THAT(report, IsOk());
      EXPECT_EQ(report->target_digest, report->source_digest);
      EXPECT_EQ(DigestAsHf(options.target), DigestAsHf(source));
      ConvertOptions back = Between("torch_dist", "hf", options.target, "hf");
      back.overwrite = true;
      back.to.choices["expert_layout"] = kOriginalChoice;
      back.to.choices["body"] = kOriginalChoice;
      ASSERT_THAT(Convert(back), IsOk());
      EXPECT_EQ(DigestAsHf(back.target), DigestAsHf(source));
    }
  }
}

// What Megatron-Core wrote goes through the other naming of Megatron and comes back tensor for
// tensor and object for object.
TEST_F(TorchDistTest, IsWhatMegatronCoreWrote) {
  int num_models = 0;
  for (const std::string& name : testing::GoldenCases("torch_dist")) {
    SCOPED_TRACE(name);
    const testing::GoldenCase golden = testing::LoadGolden("torch_dist", name);
    ConvertOptions there = Between("torch_dist", "fsdp_dtensor", golden.path, "fsdp");
    there.overwrite = true;
    there.weights_only = true;
    there.to.choices["transformer_impl"] = "local";
    const Result<Configuration> args = ArgsOf(golden);
    ASSERT_THAT(args, IsOk());
    if (args->empty()) {
      // Tensors and objects of no model, to have every dtype and grid.
      EXPECT_TRUE(name.starts_with("hand_"));
      EXPECT_THAT(Convert(there), FailsWith(ErrorKind::kNotFound));
      continue;
    }
    Result<Configuration> config = ConfigFromMegatronArgs(*args);
    ASSERT_THAT(config, IsOk());
    // Rows that pad the vocabulary are random in one of them, and would be left out.
    (*config)["vocab_size"] = (*config)["padded_vocab_size"];
    there.model.assets = WriteConfig(*config);
    ASSERT_THAT(Convert(there), IsOk());
    ConvertOptions back = ToTorchDist(there.target, "fsdp_dtensor");
    back.overwrite = true;
    back.to.choices["transformer_impl"] = "local";
    ASSERT_THAT(Convert(back), IsOk());
    EXPECT_EQ(TensorsOf(back.target), TensorsOf(golden));
    EXPECT_EQ(ObjectsOf(back.target), ObjectsOf(golden.path));
    ++num_models;
  }
  EXPECT_GE(num_models, 7);
}

TEST_F(TorchDistTest, KeepsTheFormOfItsSource) {
  const Path source = Golden("qwen3moe-norm-bf16");
  ConvertOptions options = ToFsdp(source);
  options.to.choices["transformer_impl"] = "local";
  ASSERT_THAT(Convert(options), IsOk());
  const ConvertOptions on = ToTorchDist(options.target, "fsdp_dtensor");
  ASSERT_THAT(Convert(on), IsOk());
  EXPECT_THAT(ObjectsOf(on.target),
              Not(::testing::Contains(HasSubstr("final_layernorm._extra_state"))));
}

// Megatron keeps layers apart where `moe_layer_freq` is a list.
TEST_F(TorchDistTest, SaysInTheArgsWhatTheKeysAre) {
  for (const bool is_stacked : {true, false}) {
    ConvertOptions options = ToTorchDist(Golden("qwen3moe-norm-bf16"));
    options.overwrite = true;
    options.to.choices["layer_keys"] = is_stacked ? "stacked" : "per_layer";
    ASSERT_THAT(Convert(options), IsOk());
    EXPECT_EQ(TensorsOf(options.target).contains("decoder.layers.mlp.router.weight"), is_stacked);
    const auto opened = OpenCheckpoint(PosixStorage(), options.target);
    ASSERT_THAT(opened, IsOk());
    const auto args = opened->format->read_args(*opened->source);
    ASSERT_THAT(args, IsOk());
    const layout::Value& freq = args->at("moe_layer_freq");
    EXPECT_EQ(freq.AsInt() != nullptr, is_stacked);
    EXPECT_EQ(freq.AsList() != nullptr, !is_stacked);
    EXPECT_EQ(*args->at("ckpt_format").AsText(), "torch_dist");
  }
}

TEST_F(TorchDistTest, DependsOnNeitherThreadsNorBudget) {
  ConvertOptions options = ToTorchDist(Golden("qwen3moe-step-bf16"));
  options.files = 3;
  options.parity_group = 2;
  ASSERT_THAT(Convert(options), IsOk());
  ExpectSameForAnyThreadsAndBudget(options.target, options);
}

// A config.json says what model it is, when the run's arguments are lost.
TEST_F(TorchDistTest, AModelWhoseCommonStateIsLostIsConvertedByName) {
  const Path assets = Golden("qwen2-bf16");
  const ConvertOptions there = ToTorchDist(assets);
  ASSERT_THAT(Convert(there), IsOk());
  boost::filesystem::remove(there.target / "release" / "common.pt");
  boost::filesystem::remove(there.target / "release" / "ckptkit.json");
  ConvertOptions back = Between("torch_dist", "hf", there.target, "back");
  back.model.assets = assets;
  const auto refused = Convert(back);
  ASSERT_THAT(refused, FailsWith(ErrorKind::kMissingFile));
  EXPECT_THAT(refused.status().first().hint, HasSubstr("--drop common_state"));
  back.model.drop = {"common_state"};
  ASSERT_THAT(Convert(back), IsOk());
  EXPECT_EQ(Content(back.target / "model.safetensors"), Content(assets / "model.safetensors"));
}

}  // namespace
}  // namespace ckpt
