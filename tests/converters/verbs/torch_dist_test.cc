// Models as Megatron-Core's torch_dist, both ways.
#include <map>
#include <string>
#include <vector>

#include <gmock/gmock.h>

#include "core/checkpoint/digest.h"
#include "tests/converters/verbs/convert_fixture.h"

namespace ckpt {
namespace {

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

  // Every tensor of the model in the checkpoint.
  static std::map<std::string, Stored> TensorsOf(const Path& path) {
    std::map<std::string, Stored> tensors;
    const auto opened = OpenCheckpoint(PosixStorage(), path);
    EXPECT_THAT(opened, IsOk());
    if (!opened.ok()) return tensors;
    for (const GlobalTensor& tensor : opened->source->index().tensors()) {
      if (tensor.key.starts_with("optimizer.") || tensor.key.starts_with("chained_")) continue;
      const auto digest =
          DigestTensor(*opened->source, tensor, HashAlgorithm::kSha256, std::uint64_t{1} << 20);
      EXPECT_THAT(digest, IsOk());
      tensors[tensor.key] = {std::string(DTypeName(tensor.dtype)), tensor.shape, digest.value()};
    }
    return tensors;
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
      // A family without tables, or weights that must be decoded.
      if (!prepared.ok()) {
        EXPECT_THAT(prepared, FailsWith(ErrorKind::kUnsupported));
        continue;
      }
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
    const Path source = testing::LoadGolden("torch_dist", name).path;
    ConvertOptions there = Between("torch_dist", "fsdp_dtensor", source, "fsdp");
    there.overwrite = true;
    there.weights_only = true;
    there.to.choices["transformer_impl"] = "local";
    const auto converted = Convert(there);
    if (!converted.ok()) continue;  // made by hand, or a model that no table describes
    ++num_models;
    ConvertOptions back = ToTorchDist(there.target, "fsdp_dtensor");
    back.overwrite = true;
    back.to.choices["transformer_impl"] = "local";
    ASSERT_THAT(Convert(back), IsOk());
    EXPECT_EQ(TensorsOf(back.target), TensorsOf(source));
    EXPECT_EQ(ObjectsOf(back.target), ObjectsOf(source));
  }
  EXPECT_GE(num_models, 6);
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

}  // namespace
}  // namespace ckpt
