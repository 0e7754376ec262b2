#include "trainer/model/model_config.h"

#include <cmath>
#include <string>

#include <gtest/gtest.h>

#include "converters/config/hf_config.h"
#include "converters/config/model_settings.h"
#include "converters/families/family_registry.h"
#include "core/tensor/shape.h"
#include "tests/testing/golden.h"
#include "tests/testing/matchers.h"
#include "trainer/model/settings_reader.h"

namespace ckpt::trainer {
namespace {

using layout::Configuration;
using layout::Value;
using ::testing::AnyOf;
using testing::FailsWith;
using testing::IsOk;
using ::testing::StartsWith;

Configuration Tiny() {
  return {{"num_layers", 2},          {"hidden_size", 16}, {"ffn_hidden_size", 20},
          {"num_attention_heads", 4}, {"vocab_size", 10},  {"num_query_groups", 2}};
}

Configuration With(Configuration settings, const Configuration& more) {
  for (const auto& [name, value] : more) settings[name] = value;
  return settings;
}

Configuration Latent() {
  Configuration settings = Tiny();
  settings.erase("num_query_groups");
  for (const auto& [name, value] : Configuration{{"multi_latent_attention", true},
                                                 {"kv_lora_rank", 5},
                                                 {"qk_head_dim", 12},
                                                 {"qk_pos_emb_head_dim", 8},
                                                 {"v_head_dim", 3}}) {
    settings[name] = value;
  }
  return settings;
}

Configuration Experts() {
  Configuration settings = Tiny();
  settings["num_experts"] = 8;
  settings["moe_router_topk"] = 3;
  settings["moe_ffn_hidden_size"] = 6;
  settings["moe_router_pre_softmax"] = true;
  return settings;
}

TEST(ParseModelConfig, FillsInWhatALlamaHas) {
  const auto config = ParseModelConfig(Tiny());
  ASSERT_THAT(config, IsOk());
  EXPECT_EQ(config->kv_channels, 4);
  EXPECT_EQ(config->padded_vocab_size, 10);
  EXPECT_FALSE(config->tied_embeddings);
  EXPECT_FALSE(config->moe);
  EXPECT_FALSE(config->mla);
  EXPECT_EQ(config->window_size, (std::vector<std::int64_t>{0, 0}));
  EXPECT_EQ(config->is_moe_layer, (std::vector<bool>{false, false}));
}

TEST(ParseModelConfig, TakesBiasesOfTheMlpAlone) {
  Configuration settings = Tiny();
  settings["add_bias_linear"] = true;
  EXPECT_TRUE(ParseModelConfig(settings)->qkv_bias);  // unless said otherwise
  settings["add_qkv_bias"] = false;
  settings["add_attention_output_bias"] = false;
  const auto config = ParseModelConfig(settings);
  ASSERT_THAT(config, IsOk());
  EXPECT_TRUE(config->mlp_bias);
  EXPECT_FALSE(config->qkv_bias);
  EXPECT_FALSE(config->attention_output_bias);
}

TEST(ParseModelConfig, ReportsEverythingAtOnceAndTheNearestName) {
  const auto config = ParseModelConfig({{"num_layers", 2},
                                        {"hidden_sise", 12},
                                        {"ffn_hidden_size", "many"},
                                        {"num_attention_heads", 4},
                                        {"vocab_size", 10},
                                        {"swiglu", 1},
                                        {"moe_router_topk", 0},
                                        {"rope_scaling_type", "ntk"}});
  ASSERT_THAT(config, FailsWith(ErrorKind::kUsage));
  const std::string all = config.status().ToString();
  for (const char* want : {"hidden_size is missing", "no setting hidden_sise",
                           "did you mean hidden_size", "setting ffn_hidden_size", "setting swiglu",
                           "setting moe_router_topk", "setting rope_scaling_type"}) {
    EXPECT_NE(all.find(want), std::string::npos) << want << " in\n" << all;
  }
}

TEST(ParseModelConfig, SaysWhatItHasInsteadOfWhatOthersHave) {
  Configuration settings = Tiny();
  for (const auto& [given, says] :
       {std::pair("tensor_model_parallel_size",
                  "does not divide a tensor's computation among ranks"),
        std::pair("pipeline_model_parallel_size", "has no pipeline"),
        std::pair("epochs", "train_iters"), std::pair("num_heads", "num_attention_heads")}) {
    settings[given] = 2;
    const Status refused = ParseModelConfig(settings).status();
    ASSERT_THAT(refused, FailsWith(ErrorKind::kUsage)) << given;
    EXPECT_NE(refused.first().hint.find(says), std::string::npos) << refused.first().hint;
    settings.erase(given);
  }
}

// What stands in for a size of the wrong kind divides nothing, and that is not a finding of its
// own.
TEST(ParseModelConfig, SaysOnceThatASizeIsNoNumber) {
  Configuration settings = Tiny();
  settings["hidden_size"] = "12";
  settings.erase("kv_channels");
  const auto config = ParseModelConfig(settings);
  ASSERT_THAT(config, FailsWith(ErrorKind::kUsage));
  EXPECT_EQ(config.status().problems().size(), 1U) << config.status().ToString();
}

// Sizes come from files, too.
TEST(ParseModelConfig, RefusesSizesWhoseProductsWouldWrap) {
  constexpr std::int64_t kHuge = std::int64_t{1} << 62;
  for (const char* size : {"hidden_size", "ffn_hidden_size", "vocab_size", "num_attention_heads",
                           "kv_channels", "num_experts", "moe_ffn_hidden_size"}) {
    Configuration settings = With(Experts(), {{size, kHuge}});
    const auto config = ParseModelConfig(settings);
    ASSERT_THAT(config, FailsWith(ErrorKind::kUsage)) << size;
    const std::string text = config.status().ToString();
    EXPECT_TRUE(text.find("10^18 weights") != std::string::npos ||
                text.find("num_experts is too large") != std::string::npos)
        << text;
  }
}

struct BadSetting {
  const char* name;
  Configuration settings;
  const char* key;
  Value value;
  const char* says = nullptr;  // what the message names, if not the key
};
void PrintTo(const BadSetting& c, std::ostream* os) { *os << c.name; }
class BadSettingTest : public ::testing::TestWithParam<BadSetting> {};

TEST_P(BadSettingTest, IsRefusedNamingIt) {
  Configuration settings = GetParam().settings;
  ASSERT_THAT(ParseModelConfig(settings), IsOk());
  settings[GetParam().key] = GetParam().value;
  const auto config = ParseModelConfig(settings);
  ASSERT_THAT(config, FailsWith(ErrorKind::kUsage));
  ASSERT_EQ(config.status().problems().size(), 1U) << config.status().ToString();
  const char* const named = GetParam().says == nullptr ? GetParam().key : GetParam().says;
  EXPECT_NE(config.status().ToString().find(named), std::string::npos);
}

INSTANTIATE_TEST_SUITE_P(
    All, BadSettingTest,
    ::testing::Values(BadSetting{"GroupsDoNotDivideHeads", Tiny(), "num_query_groups", 3},
                      BadSetting{"NoHeadSize", Tiny(), "num_attention_heads", 6, "kv_channels"},
                      BadSetting{"OddHead", Tiny(), "rotary_percent", 0.4, "kv_channels"},
                      BadSetting{"NoLayers", Tiny(), "num_layers", 0},
                      BadSetting{"TooManyLayers", Tiny(), "num_layers", 1 << 30},
                      BadSetting{"PaddedBelow", Tiny(), "padded_vocab_size", 9},
                      BadSetting{"TwoSidedWindow", Tiny(), "window_size", Value::List{3, 3}},
                      BadSetting{"ShortPattern", Tiny(), "window_attn_skip_freq", Value::List{1}},
                      BadSetting{"LayerNormOfQueries", With(Tiny(), {{"qk_layernorm", true}}),
                                 "normalization", "LayerNorm"},
                      BadSetting{"LayerNormOfLatents", Latent(), "normalization", "LayerNorm"},
                      BadSetting{"NanEpsilon", Tiny(), "norm_epsilon", std::nan("")},
                      BadSetting{"NoPositions", Tiny(), "position_embedding_type",
                                 "learned_absolute", "max_position_embeddings"},
                      BadSetting{"YarnWithoutOrigin", Tiny(), "rope_scaling_type", "yarn",
                                 "original_max_position_embeddings"},
                      BadSetting{"LatentWithGroups", Latent(), "num_query_groups", 2},
                      BadSetting{"LatentWithAnotherHead", Latent(), "kv_channels", 3},
                      BadSetting{"LatentWithBias", Latent(), "add_qkv_bias", true},
                      BadSetting{"DenseWithLatentBias", Tiny(), "add_latent_bias", true},
                      BadSetting{"LatentWithoutRank", Latent(), "kv_lora_rank", 0},
                      BadSetting{"TooFewExperts", Experts(), "moe_router_topk", 9},
                      BadSetting{"UnevenGroups", Experts(), "moe_router_num_groups", 3},
                      BadSetting{"BiasOfSoftmax", Experts(), "moe_router_enable_expert_bias", true},
                      BadSetting{"PadWithoutCapacity", Experts(),
                                 "moe_pad_expert_input_to_capacity", true},
                      BadSetting{"ShortMoePattern", Experts(), "moe_layer_freq", Value::List{1}}),
    [](const auto& test) { return std::string(test.param.name); });

// A setting that decides nothing, and the one without which it is idle.
struct IdleSetting {
  const char* name;
  Configuration settings;
  const char* key;
  Value value;
  const char* says;
};
void PrintTo(const IdleSetting& c, std::ostream* os) { *os << c.name; }
class IdleSettingTest : public ::testing::TestWithParam<IdleSetting> {};

TEST_P(IdleSettingTest, IsRefusedWhereTheUserGaveIt) {
  Configuration settings = GetParam().settings;
  ASSERT_THAT(ParseModelConfig(settings), IsOk());
  settings[GetParam().key] = GetParam().value;
  const auto config = ParseModelConfig(settings);
  ASSERT_THAT(config, FailsWith(ErrorKind::kUsage));
  ASSERT_EQ(config.status().problems().size(), 1U) << config.status().ToString();
  const std::string says =
      "setting " + std::string(GetParam().key) + " does nothing " + GetParam().says;
  EXPECT_NE(config.status().ToString().find(says), std::string::npos) << config.status().ToString();

  // Stored or translated settings may say more than is used.
  const Configuration given = GetParam().settings;
  SettingsReader reader(settings, &given);
  ReadModelConfig(reader);
  EXPECT_THAT(reader.Finish(), IsOk());
}

// YAML does not know that it is a word.
TEST(SettingsReaderTest, TakesAWordThatLooksLikeANumber) {
  const std::vector<std::pair<std::string_view, int>> words = {{"compat", 0}, {"0.19", 19}};
  for (const Value& written : {Value(0.19), Value("0.19")}) {
    const Configuration settings = {{"generation", written}};
    SettingsReader reader(settings);
    EXPECT_EQ(reader.Word("generation", words), 19);
    EXPECT_THAT(reader.Finish(), IsOk());
    EXPECT_EQ(reader.effective().at("generation"), Value("0.19"));
  }
  for (const Value& written : {Value(0.2), Value(19), Value(true), Value("0.2")}) {
    const Configuration settings = {{"generation", written}};
    SettingsReader reader(settings);
    reader.OptionalWord("generation", words);
    EXPECT_THAT(reader.Finish(), FailsWith(ErrorKind::kUsage));
  }
}

TEST(SettingsReaderTest, RefusesWhatIsOfSomethingElseUnlessItChangesNothing) {
  const Configuration given = {{"form", "flat"}, {"usual", "whole"}};
  const Configuration settings = With(given, {{"stored", 3}});
  SettingsReader reader(settings, &given);
  reader.SetDefault("usual", "whole");
  for (const char* name : {"form", "usual", "stored", "absent"}) {
    reader.RefuseForeign(name, "is of other runs");
  }
  EXPECT_EQ(reader.Finish().ToString(), "usage: setting form is of other runs: found \"flat\"");
  EXPECT_FALSE(reader.effective().contains("stored"));
}

// What it is of may be what the wrong setting was to say.
TEST(SettingsReaderTest, SaysOnlyWhatIsWrongWhereThatMayBeWhyASettingIsNotRead) {
  const Configuration settings = {{"kind", "gguf"}, {"form", "flat"}};
  SettingsReader reader(settings);
  reader.Word<int>("kind", {{"hf", 0}});
  reader.RefuseForeign("form", "is of other kinds");
  const Status problems = reader.Finish();
  ASSERT_THAT(problems, FailsWith(ErrorKind::kUsage));
  EXPECT_EQ(problems.problems().size(), 1U) << problems.ToString();
}

Configuration Yarn() {
  return With(Tiny(), {{"rope_scaling_type", "yarn"}, {"original_max_position_embeddings", 64}});
}

INSTANTIATE_TEST_SUITE_P(
    All, IdleSettingTest,
    ::testing::Values(
        IdleSetting{"LatentRank", Tiny(), "kv_lora_rank", 5, "without multi_latent_attention"},
        IdleSetting{"LatentEpsilon", Tiny(), "latent_norm_epsilon", 1e-3,
                    "without multi_latent_attention"},
        IdleSetting{"WindowPattern", Tiny(), "window_attn_skip_freq", 2, "without window_size"},
        IdleSetting{"Factor", Tiny(), "rotary_scaling_factor", 2, "without rope_scaling_type"},
        IdleSetting{"Origin", Tiny(), "original_max_position_embeddings", 64,
                    "without rope_scaling_type llama3 or yarn"},
        IdleSetting{"LowFactor", Yarn(), "low_freq_factor", 2, "without rope_scaling_type=llama3"},
        IdleSetting{"BetaFast", Tiny(), "beta_fast", 16, "without rope_scaling_type=yarn"},
        IdleSetting{"Truncation", Tiny(), "yarn_correction_range_round_to_int", false,
                    "without rope_scaling_type=yarn"},
        IdleSetting{"MscaleAlone", Yarn(), "mscale", 0.7, "without mscale_all_dim"},
        IdleSetting{"MscaleBesideFactor", With(Yarn(), {{"rope_attention_factor", 1.5}}), "mscale",
                    0.7, "together with rope_attention_factor"},
        IdleSetting{"Topk", Tiny(), "moe_router_topk", 4, "without num_experts"},
        IdleSetting{"Groups", Tiny(), "moe_router_num_groups", 2, "without num_experts"},
        IdleSetting{"LayersOfExperts", Tiny(), "moe_layer_freq", Value::List{0, 1},
                    "without num_experts"},
        IdleSetting{"SharedExpert", Tiny(), "moe_shared_expert_intermediate_size", 8,
                    "without num_experts"},
        IdleSetting{"GateOfNoExpert", Experts(), "moe_shared_expert_gate", true,
                    "without moe_shared_expert_intermediate_size"},
        IdleSetting{"WideNorms", Tiny(), "qk_layernorm_over_heads", true, "without qk_layernorm"},
        IdleSetting{"GroupScore", Experts(), "moe_router_group_score", "max",
                    "without moe_router_num_groups"},
        IdleSetting{"Normalization", With(Experts(), {{"moe_router_pre_softmax", false}}),
                    "moe_router_normalize_topk", true, "without moe_router_pre_softmax"},
        IdleSetting{"BiasRate", Experts(), "moe_router_bias_update_rate", 1e-3,
                    "without moe_router_enable_expert_bias"},
        IdleSetting{"Coefficient", Experts(), "moe_aux_loss_coeff", 0.01,
                    "without moe_router_load_balancing_type"},
        IdleSetting{"Balancing", Experts(), "moe_router_load_balancing_type", "aux_loss",
                    "without moe_aux_loss_coeff"},
        IdleSetting{"Policy", Experts(), "moe_token_drop_policy", "position",
                    "without moe_expert_capacity_factor"}),
    [](const auto& tested) { return tested.param.name; });

TEST(ParseModelConfig, TakesWhatStandsInForAnAbsentSetting) {
  EXPECT_THAT(ParseModelConfig(With(Tiny(), {{"num_experts", 0},
                                             {"moe_aux_loss_coeff", 0},
                                             {"moe_router_load_balancing_type", "none"},
                                             {"rotary_scaling_factor", 1},
                                             {"kv_lora_rank", 0},
                                             {"beta_fast", 32.0}})),
              IsOk());
}

// A run stores settings of its batches and its optimizer beside those of its model.
TEST(ReadStoredModel, TakesTheModelAmongSettingsOfARun) {
  const Configuration run = With(Tiny(), {{"lr", 0.1}, {"moe_router_topk", 2}});
  EXPECT_EQ(SettingsOfModel(run), With(Tiny(), {{"moe_router_topk", 2}}));
  const auto stored = ReadStoredModel(run);  // a model without experts
  ASSERT_THAT(stored, IsOk());
  EXPECT_EQ(*stored, *ParseModelConfig(Tiny()));
  EXPECT_THAT(ReadStoredModel({{"lr", 0.1}}), FailsWith(ErrorKind::kUsage));
}

TEST(ParseModelConfig, CountsLayersAsMegatronDoes) {
  Configuration settings = Experts();
  settings["num_layers"] = 4;
  settings["moe_layer_freq"] = 2;
  settings["window_size"] = Value::List{7, 0};
  settings["window_attn_skip_freq"] = 2;
  const auto config = ParseModelConfig(settings);
  ASSERT_THAT(config, IsOk());
  EXPECT_EQ(config->is_moe_layer, (std::vector<bool>{true, false, true, false}));
  EXPECT_EQ(config->window_size, (std::vector<std::int64_t>{8, 0, 8, 0}));
}

// The numbers of transformers.modeling_rope_utils for the same keys.
TEST(ParseModelConfig, SharpensYarnAsTransformersDoes) {
  Configuration settings = Latent();
  settings["rope_scaling_type"] = "yarn";
  settings["rotary_scaling_factor"] = 4.0;
  settings["original_max_position_embeddings"] = 16;
  auto config = ParseModelConfig(settings);
  ASSERT_THAT(config, IsOk());
  EXPECT_DOUBLE_EQ(config->rope.attention_factor, 1.138629436111989);
  EXPECT_EQ(config->softmax_scale, 0);
  settings["mscale"] = 1.0;
  settings["mscale_all_dim"] = 0.7;
  config = ParseModelConfig(settings);
  ASSERT_THAT(config, IsOk());
  EXPECT_DOUBLE_EQ(config->rope.attention_factor, 1.138629436111989 / 1.0970406052783923);
  EXPECT_DOUBLE_EQ(config->softmax_scale, std::pow(20, -0.5) * std::pow(1.0970406052783923, 2));
  settings.erase("mscale");
  settings["rope_attention_factor"] = 1.5;
  config = ParseModelConfig(settings);
  ASSERT_THAT(config, IsOk());
  EXPECT_EQ(config->rope.attention_factor, 1.5);
}

TEST(ParseModelConfig, RoutesAsTheScoresAsk) {
  Configuration settings = Experts();
  settings["moe_router_pre_softmax"] = false;
  auto config = ParseModelConfig(settings);
  ASSERT_THAT(config, IsOk());
  EXPECT_EQ(config->moe->router.score, ScoreFunction::kSoftmaxTopK);
  settings["moe_router_pre_softmax"] = true;
  config = ParseModelConfig(settings);
  ASSERT_THAT(config, IsOk());
  EXPECT_EQ(config->moe->router.score, ScoreFunction::kSoftmax);
  EXPECT_FALSE(config->moe->router.normalize);
  settings.erase("moe_router_pre_softmax");
  settings["moe_router_score_function"] = "sigmoid";
  config = ParseModelConfig(settings);
  ASSERT_THAT(config, IsOk());
  EXPECT_EQ(config->moe->router.score, ScoreFunction::kSigmoid);
  EXPECT_TRUE(config->moe->router.normalize);
}

TEST(CountParameters, OfAMixtureMeetsOnlyTheChosen) {
  const auto config = ParseModelConfig(Experts());
  ASSERT_THAT(config, IsOk());
  const std::int64_t expert = 3 * 16 * 6;
  EXPECT_EQ(CountParameters(*config) - CountActiveParameters(*config), 2 * 5 * expert);
}

TEST(ParseModelConfig, RefusesTheGateOfASharedExpertWithBiases) {
  EXPECT_THAT(ParseModelConfig(With(Experts(), {{"moe_shared_expert_intermediate_size", 8},
                                                {"moe_shared_expert_gate", true},
                                                {"add_bias_linear", true}})),
              FailsWith(ErrorKind::kUsage));
}

// Every golden of the families: settings, sizes, and the number of weights in the files.
TEST(GoldenModels, HaveAsManyWeightsAsTheirFiles) {
  int num_models = 0;
  for (const std::string& name : testing::GoldenCases("hf")) {
    SCOPED_TRACE(name);
    const testing::GoldenCase golden = testing::LoadGolden("hf", name);
    const auto text = ReadSmallFile(PosixStorage(), golden.path / "config.json", 1 << 20);
    ASSERT_THAT(text, IsOk());
    const auto hf = ParseHfConfig(*text, name);
    ASSERT_THAT(hf, IsOk());
    if (!FindFamily(*hf).ok()) continue;
    const auto settings = ModelSettings(*hf);
    if (!settings.ok()) {
      EXPECT_EQ(settings.status().kind(), ErrorKind::kUnsupported);
      // Queries, keys and values are clipped, or attention has sinks.
      EXPECT_THAT(name, AnyOf(StartsWith("olmoe"), StartsWith("gptoss")));
      continue;
    }
    const auto config = ParseModelConfig(*settings);
    ASSERT_THAT(config, IsOk());
    std::int64_t stored = 0;
    const std::string further =
        "model.layers." + std::to_string(config->num_layers) + ".";  // multi-token prediction
    for (const auto& [key, tensor] : golden.tensors) {
      const bool is_weight = !key.starts_with(further) &&
                             !key.ends_with("e_score_correction_bias") &&
                             !key.ends_with("_scale_inv");
      const bool is_copy = config->tied_embeddings && key == "lm_head.weight";
      if (is_weight && !is_copy) stored += NumElements(tensor.shape);
    }
    EXPECT_EQ(CountParameters(*config), stored);
    ++num_models;
  }
  EXPECT_GE(num_models, 8);
}

}  // namespace
}  // namespace ckpt::trainer
