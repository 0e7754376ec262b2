// The built-in tables against checkpoints that transformers, Megatron-Bridge, Megatron-FSDP and
// Megatron-Core wrote.

#include <algorithm>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include <gmock/gmock.h>

#include "converters/config/hf_config.h"
#include "converters/config/megatron_args.h"
#include "converters/config/model_settings.h"
#include "converters/families/family_registry.h"
#include "converters/quantised/decoded_weights.h"
#include "core/base/hash.h"
#include "core/checkpoint/read.h"
#include "core/layout/compose.h"
#include "core/layout/match.h"
#include "formats/registry/registry.h"
#include "tests/core/layout/apply_nest.h"
#include "tests/testing/golden.h"
#include "tests/testing/matchers.h"

namespace ckpt {
namespace {

using layout::Choices;
using layout::Composition;
using layout::Configuration;
using layout::LayoutTable;
using layout::ResolvedLayout;
using layout::SourceMatch;
using layout::Value;
using testing::FailsWith;
using testing::GoldenCase;
using testing::GoldenTensor;
using testing::IsOk;

std::string ReadText(const Path& path) {
  const Result<std::string> text = ReadSmallFile(PosixStorage(), path, 64ULL << 20);
  EXPECT_THAT(text, IsOk());
  return text.ok() ? *text : std::string();
}

std::vector<GlobalTensor> TensorsOf(const std::map<std::string, GoldenTensor>& golden) {
  std::vector<GlobalTensor> tensors;
  for (const auto& [key, tensor] : golden) {
    tensors.push_back({key, ParseDType(tensor.dtype).value(), tensor.shape, 0, 0});
  }
  return tensors;
}

std::string Describe(const std::vector<Problem>& problems) { return Status(problems).ToString(); }

// The values of all tensors, by name.
std::map<std::string, Bytes> ReadAll(const CheckpointSource& source) {
  std::map<std::string, Bytes> tensors;
  for (const GlobalTensor& tensor : source.index().tensors()) {
    Bytes& values = tensors[tensor.key];
    values.resize(NumBytes(tensor.shape, tensor.dtype));
    EXPECT_THAT(ReadBox(source, tensor, WholeBox(tensor.shape), values, 1 << 20), IsOk());
  }
  return tensors;
}

// A golden Hugging Face model of one of the built-in families, its weights decoded.
struct HfModel {
  std::string name;
  GoldenCase golden;
  Configuration config;
  const LayoutTable* family = nullptr;
  std::shared_ptr<const CheckpointSource> source;

  [[nodiscard]] std::span<const GlobalTensor> tensors() const { return source->index().tensors(); }
};

std::vector<HfModel> HfModels() {
  std::vector<HfModel> models;
  for (const std::string& name : testing::GoldenCases("hf")) {
    HfModel model;
    model.name = name;
    model.golden = testing::LoadGolden("hf", name);
    const auto config = ParseHfConfig(ReadText(model.golden.path / "config.json"), "config.json");
    EXPECT_THAT(config, IsOk()) << name;
    const auto family = FindFamily(*config);
    if (!family.ok()) {
      EXPECT_EQ(family.status().kind(), ErrorKind::kUnsupported) << name;
      continue;
    }
    model.config = *config;
    model.family = *family;
    const auto opened = OpenCheckpoint(PosixStorage(), model.golden.path);
    EXPECT_THAT(opened, IsOk()) << name;
    const auto decoded = DecodeWeights(opened->source, *config);
    EXPECT_THAT(decoded, IsOk()) << name;
    EXPECT_EQ(decoded->source != nullptr, config->contains("quantization_config.quant_method"));
    model.source = decoded->source ? decoded->source : opened->source;
    models.push_back(std::move(model));
  }
  return models;
}

Bytes MakeTensor(const std::vector<layout::Nest>& nests, const ResolvedLayout& source,
                 const layout::ResolvedTensor& target, const std::map<std::string, Bytes>& files,
                 std::size_t element_bytes) {
  Bytes bytes(static_cast<std::size_t>(NumElements(target.shape)) * element_bytes);
  for (const layout::Nest& nest : nests) {
    if (nest.is_zero_fill()) continue;
    const layout::ResolvedTensor& from = source.tensors[nest.source];
    testing::ApplyNest(nest, files.at(source.Key(from)), from.shape, bytes, target.shape,
                       element_bytes);
  }
  return bytes;
}

TEST(GoldenHfModels, OfTheBuiltInFamiliesAreThere) { EXPECT_GE(HfModels().size(), 4U); }

TEST(GoldenHfModels, MatchTheHfLayoutWithoutAProblem) {
  for (const HfModel& model : HfModels()) {
    SCOPED_TRACE(model.name);
    const auto match = layout::MatchSource(*model.family, "hf", model.config, model.tensors());
    ASSERT_THAT(match, IsOk());
    EXPECT_TRUE(match->problems.empty()) << Describe(match->problems);
    EXPECT_TRUE(match->ignored.empty());
    EXPECT_FALSE(match->lacks_extra);
    // The hub's copies of the embedding and of the head, of each layer that predicts a token.
    EXPECT_EQ(match->derived_present.size(), model.name.find("mtp") == std::string::npos ? 0 : 2);
    EXPECT_EQ(match->layout.choices.at("expert_layout"),
              model.name.find("fused") == std::string::npos ? "published" : "fused");
  }
}

// Name and value of every Megatron tensor, fc1 fused as Megatron-Bridge holds it.
TEST(GoldenHfModels, BecomeTheTensorsOfMegatronBridge) {
  int num_compared = 0;
  for (const HfModel& model : HfModels()) {
    SCOPED_TRACE(model.name);
    const Path account = model.golden.directory / "megatron.json";
    if (PosixStorage().Stat(account)->type == FileType::kMissing)
      continue;  // Bridge has no such family
    const std::string text = ReadText(account);
    const auto json = JsonDocument::Parse(text, "megatron.json");
    ASSERT_THAT(json, IsOk());
    const bool is_complete = json->root().At("complete").value().Bool().value();

    const auto tensors = model.tensors();
    const auto match = layout::MatchSource(*model.family, "hf", model.config, tensors);
    ASSERT_THAT(match, IsOk());
    const auto target = layout::Resolve(*model.family, "fsdp_dtensor", model.config);
    ASSERT_THAT(target, IsOk());
    const auto composition = layout::Compose(match->layout, *target);
    ASSERT_THAT(composition, IsOk());
    const layout::TargetDtypes dtypes =
        layout::InheritDtypes(*composition, *target, *match, tensors);
    EXPECT_TRUE(dtypes.problems.empty());
    const std::map<std::string, Bytes> files = ReadAll(*model.source);

    std::map<std::string, GoldenTensor> ours;
    std::map<std::string, Bytes> values;
    for (const std::string_view half : {"_w", "_v", ""}) {  // gate before up, whatever the order
      for (std::size_t t = 0; t < target->tensors.size(); ++t) {
        std::string name = target->tensors[t].name;
        const bool is_split = name.ends_with("_w") || name.ends_with("_v");
        if (half.empty() ? is_split : !name.ends_with(half)) continue;
        if (is_split) name.resize(name.size() - 2);
        Append(MakeTensor(composition->nests[t], match->layout, target->tensors[t], files,
                          ElementBytes(dtypes.dtypes[t])),
               values[name]);
        GoldenTensor& tensor = ours[name];
        if (tensor.shape.empty()) {
          tensor.shape = target->tensors[t].shape;
        } else {
          tensor.shape[0] += target->tensors[t].shape[0];
        }
      }
    }
    const auto theirs = json->root().At("tensors").value().Members();
    for (const auto& [name, tensor] : *theirs) {
      SCOPED_TRACE(name);
      ASSERT_TRUE(ours.contains(name));
      EXPECT_EQ(ours[name].shape, tensor.At("shape").value().Int64Array().value());
      EXPECT_EQ(HashHex(HashAlgorithm::kSha256, values[name]),
                tensor.At("sha256").value().Text().value());
      ++num_compared;
    }
    // What Bridge leaves out, such as layers that predict further tokens, we have besides.
    if (is_complete) {
      EXPECT_EQ(ours.size(), theirs->size());
    } else {
      EXPECT_GT(ours.size(), theirs->size());
    }
  }
  EXPECT_GT(num_compared, 100);
}

TEST(GoldenHfModels, ComeBackFromEveryMegatronLayoutBitForBit) {
  const std::vector<std::pair<std::string, Choices>> targets = {
      {"fsdp_dtensor", {}},
      {"fsdp_dtensor", {{"transformer_impl", "local"}, {"expert_names", "sequential"}}},
      {"torch_dist", {}},
      {"torch_dist", {{"layer_keys", "per_layer"}}},
      {"torch_dist", {{"layer_keys", "per_layer"}, {"transformer_impl", "local"}}},
      {"fsdp2", {}},
      {"mp_rank", {}},
      {"mp_rank", {{"transformer_impl", "local"}, {"expert_names", "sequential"}}},
      {"mp_rank", {{"further_names", "mtp_model_layer"}}},
      {"trainer", {}}};
  for (const HfModel& model : HfModels()) {
    const auto tensors = model.tensors();
    const auto match = layout::MatchSource(*model.family, "hf", model.config, tensors);
    ASSERT_THAT(match, IsOk());
    const std::map<std::string, Bytes> files = ReadAll(*model.source);
    for (const auto& [format, choices] : targets) {
      SCOPED_TRACE(model.name + " " + format);
      const auto middle = layout::Resolve(*model.family, format, model.config, choices);
      if (format == "trainer" && !middle.ok()) {
        // It has no names for what it does not compute, and says what that is.
        EXPECT_EQ(middle.status().kind(), ErrorKind::kCoverage);
        EXPECT_EQ(ModelSettings(model.config).status().kind(), ErrorKind::kUnsupported);
        EXPECT_THAT(model.name, ::testing::StartsWith("gptoss"));
        continue;
      }
      ASSERT_THAT(middle, IsOk());
      const auto there = layout::Compose(match->layout, *middle);
      const auto back = layout::Compose(*middle, match->layout);
      ASSERT_THAT(there, IsOk());
      if (format == "trainer" && match->layout.has_extra) {
        // It leaves out the layers that predict further tokens.
        EXPECT_THAT(back, FailsWith(ErrorKind::kCoverage));
        continue;
      }
      ASSERT_THAT(back, IsOk());
      const layout::TargetDtypes dtypes = layout::InheritDtypes(*there, *middle, *match, tensors);
      std::map<std::string, Bytes> middle_files;
      for (std::size_t t = 0; t < middle->tensors.size(); ++t) {
        middle_files[middle->Key(middle->tensors[t])] =
            MakeTensor(there->nests[t], match->layout, middle->tensors[t], files,
                       ElementBytes(dtypes.dtypes[t]));
      }
      for (std::size_t t = 0; t < match->layout.tensors.size(); ++t) {
        const layout::ResolvedTensor& tensor = match->layout.tensors[t];
        if (tensor.derived) continue;
        const std::size_t element_bytes = ElementBytes(tensors[match->positions[t]].dtype);
        EXPECT_EQ(MakeTensor(back->nests[t], *middle, tensor, middle_files, element_bytes),
                  files.at(match->layout.Key(tensor)))
            << tensor.name;
      }
    }
  }
}

TEST(GoldenHfModels, TranslateIntoArgsAndBack) {
  for (const HfModel& model : HfModels()) {
    SCOPED_TRACE(model.name);
    const auto args = MegatronArgs(model.config);
    ASSERT_THAT(args, IsOk());
    const auto back =
        ConfigFromMegatronArgs(Configuration(args->values.begin(), args->values.end()));
    ASSERT_THAT(back, IsOk());
    const auto family = FindFamily(*back);
    ASSERT_THAT(family, IsOk());
    const auto from_hf = layout::Resolve(*model.family, "fsdp_dtensor", model.config);
    const auto from_args = layout::Resolve(**family, "fsdp_dtensor", *back);
    ASSERT_THAT(from_hf, IsOk());
    ASSERT_THAT(from_args, IsOk());
    ASSERT_EQ(from_hf->tensors.size(), from_args->tensors.size());
    for (std::size_t t = 0; t < from_hf->tensors.size(); ++t) {
      EXPECT_EQ(from_hf->tensors[t].name, from_args->tensors[t].name);
      EXPECT_EQ(from_hf->tensors[t].shape, from_args->tensors[t].shape);
    }
  }
}

// `args` of a run, from its command line: what Megatron's parser would make of the flags that
// matter here.
Configuration ArgsFromFlags(const std::vector<std::string>& flags) {
  Configuration args = {{"add_bias_linear", true}, {"group_query_attention", false}};
  for (std::size_t i = 0; i < flags.size(); ++i) {
    if (!flags[i].starts_with("--")) continue;
    std::string name = flags[i].substr(2);
    std::replace(name.begin(), name.end(), '-', '_');
    if (name == "disable_bias_linear") {
      args["add_bias_linear"] = false;
    } else if (i + 1 == flags.size() || flags[i + 1].starts_with("--")) {
      args[name] = true;
    } else if (const auto value = layout::Expr::Parse(flags[i + 1]);
               value.ok() && value->names().empty()) {
      args[name] = value->Evaluate(layout::ConfigurationNames(args)).value();
    } else {
      args[name] = flags[i + 1];
    }
  }
  return args;
}

TEST(GoldenFsdpDtensor, CheckpointsOfMegatronMatchTheirArguments) {
  int num_matched = 0;
  for (const std::string& name : testing::GoldenCases("fsdp_dtensor")) {
    SCOPED_TRACE(name);
    const GoldenCase golden = testing::LoadGolden("fsdp_dtensor", name);
    const auto json = JsonDocument::Parse(ReadText(golden.directory / "expected.json"), name);
    ASSERT_THAT(json, IsOk());
    const auto flags_json = json->root().Find("flags");
    if (!flags_json) continue;  // made by the stand-alone fully_shard, no Megatron model
    std::vector<std::string> flags;
    const auto items = flags_json->Items();
    for (const JsonCursor& item : *items) flags.push_back(item.Text().value());
    const auto config = ConfigFromMegatronArgs(ArgsFromFlags(flags));
    ASSERT_THAT(config, IsOk());
    const auto family = FindFamily(*config);
    ASSERT_THAT(family, IsOk());
    const auto match =
        layout::MatchSource(**family, "fsdp_dtensor", *config, TensorsOf(golden.tensors));
    ASSERT_THAT(match, IsOk());
    EXPECT_TRUE(match->problems.empty()) << Describe(match->problems);
    EXPECT_EQ(match->layout.prefix, "model.module.");
    EXPECT_EQ(match->layout.choices.at("transformer_impl"), "local");
    EXPECT_EQ(match->layout.choices.at("expert_names"),
              name.find("sequential") == std::string::npos ? "grouped" : "sequential");
    EXPECT_FALSE(match->ignored.empty());  // the optimizer
    ++num_matched;
  }
  EXPECT_GE(num_matched, 1);
}

TEST(GoldenTorchDist, ModelsOfMegatronCoreMatchTheirConfiguration) {
  int num_matched = 0;
  for (const std::string& name : testing::GoldenCases("torch_dist")) {
    SCOPED_TRACE(name);
    const GoldenCase golden = testing::LoadGolden("torch_dist", name);
    const auto json = JsonDocument::Parse(ReadText(golden.directory / "expected.json"), name);
    ASSERT_THAT(json, IsOk());
    const auto model = json->root().Find("model");
    if (!model) continue;  // a state dict made by hand
    // TransformerConfig and GPTModel under the names of the command line.
    Configuration args = {{"swiglu", true},
                          {"group_query_attention", true},
                          {"add_bias_linear", false},
                          {"position_embedding_type", "rope"}};
    for (const auto& section : {"config", "gpt"}) {
      const auto found = model->Find(section);
      if (!found) continue;
      const auto members = found->Members();
      for (const auto& [key, value] : *members) {
        if (value.kind() == JsonKind::kUint) args[key] = value.Int64().value();
        if (value.kind() == JsonKind::kBool) args[key] = value.Bool().value();
        if (value.kind() == JsonKind::kText) args[key] = value.Text().value();
        if (value.kind() == JsonKind::kArray) {
          Value::List list;
          const auto numbers = value.Int64Array();
          if (!numbers.ok()) continue;
          for (const std::int64_t number : *numbers) list.emplace_back(number);
          args[key] = list;
        }
      }
    }
    args["num_experts"] = args["num_moe_experts"];
    args["max_position_embeddings"] = args["max_sequence_length"];
    args["swiglu"] = args.contains("gated_linear_unit") ? args["gated_linear_unit"] : Value(false);
    if (args.contains("share_embeddings_and_output_weights")) {
      args["untie_embeddings_and_output_weights"] =
          !*args["share_embeddings_and_output_weights"].AsBool();
    }
    const auto config = ConfigFromMegatronArgs(args);
    if (!config.ok()) {
      EXPECT_EQ(config.status().kind(), ErrorKind::kUnsupported) << config.status().ToString();
      continue;
    }
    const auto family = FindFamily(*config);
    ASSERT_THAT(family, IsOk());
    const auto match =
        layout::MatchSource(**family, "torch_dist", *config, TensorsOf(golden.tensors));
    ASSERT_THAT(match, IsOk());
    EXPECT_TRUE(match->problems.empty()) << Describe(match->problems);
    ++num_matched;
  }
  EXPECT_GE(num_matched, 1);
}

}  // namespace
}  // namespace ckpt
