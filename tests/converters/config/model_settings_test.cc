#include "converters/config/model_settings.h"

#include <algorithm>
#include <initializer_list>
#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "converters/families/family_registry.h"
#include "tests/converters/config/args_fixture.h"
#include "tests/testing/matchers.h"

namespace ckpt {
namespace {

using layout::Configuration;
using layout::Value;
using testing::FailsWith;
using testing::GoldenConfig;
using testing::IsOk;
using testing::IsOkAndHolds;

// What every golden's settings have in common is taken from the published keys by hand here; the
// rest is listed per case.
Configuration Common(const Configuration& hf) {
  const auto key = [&](const char* name, Value otherwise = {}) {
    const auto found = hf.find(name);
    return found == hf.end() || found->second.is_null() ? otherwise : found->second;
  };
  return {{"num_layers", key("num_hidden_layers")},
          {"hidden_size", key("hidden_size")},
          {"ffn_hidden_size", key("intermediate_size")},
          {"num_attention_heads", key("num_attention_heads")},
          {"num_query_groups", key("num_key_value_heads")},
          {"vocab_size", key("vocab_size")},
          {"untie_embeddings_and_output_weights", !*key("tie_word_embeddings", false).AsBool()},
          {"normalization", "RMSNorm"},
          {"norm_epsilon", key("rms_norm_eps")},
          {"swiglu", true},
          {"add_bias_linear", false},
          {"add_qkv_bias", false},
          {"add_attention_output_bias", false},
          {"qk_layernorm", false},
          {"init_method_std", key("initializer_range")},
          {"position_embedding_type", "rope"},
          {"rotary_base", key("rope_parameters.rope_theta", key("rope_theta"))},
          {"rotary_percent", 1.0},
          {"rotary_interleaved", false},
          {"multi_latent_attention", false}};
}

Value List(std::initializer_list<int> numbers) {
  Value::List list;
  for (const int number : numbers) list.emplace_back(number);
  return list;
}

const Configuration kLlama3 = {{"rope_scaling_type", "llama3"},
                               {"rotary_scaling_factor", 8.0},
                               {"low_freq_factor", 1.0},
                               {"high_freq_factor", 4.0},
                               {"original_max_position_embeddings", 64}};

const Configuration kLatent = {{"multi_latent_attention", true},
                               {"rotary_interleaved", true},
                               {"kv_channels", 20},
                               {"kv_lora_rank", 20},
                               {"qk_head_dim", 12},
                               {"qk_pos_emb_head_dim", 8},
                               {"v_head_dim", 14},
                               {"latent_norm_epsilon", 1e-6}};

const Configuration kYarn = {{"rope_scaling_type", "yarn"},
                             {"rotary_scaling_factor", 4.0},
                             {"beta_fast", 32.0},
                             {"beta_slow", 1.0},
                             {"mscale", 1.0},
                             {"mscale_all_dim", 0.7},
                             {"original_max_position_embeddings", 16}};

Configuration Experts(int count, int topk, int size, Value layers, bool normalizes) {
  return {{"num_experts", count},
          {"moe_router_topk", topk},
          {"moe_ffn_hidden_size", size},
          {"moe_layer_freq", std::move(layers)},
          {"moe_router_score_function", "softmax"},
          {"moe_router_pre_softmax", true},
          {"moe_router_normalize_topk", normalizes},
          {"moe_router_enable_expert_bias", false}};
}

Configuration DeepSeekV3(Value layers, bool normalizes, double scaling) {
  Configuration settings = Experts(8, 3, 24, std::move(layers), normalizes);
  settings.erase("moe_router_pre_softmax");
  settings["moe_router_score_function"] = "sigmoid";
  settings["moe_router_enable_expert_bias"] = true;
  settings["moe_router_topk_scaling_factor"] = scaling;
  settings["moe_shared_expert_intermediate_size"] = 48;
  return settings;
}

Configuration Groups(int count, int topk, const char* score) {
  return {{"moe_router_num_groups", count},
          {"moe_router_group_topk", topk},
          {"moe_router_group_score", score}};
}

struct SettingsCase {
  const char* golden;
  std::vector<Configuration> parts;  // over Common(); later ones win
};
void PrintTo(const SettingsCase& c, std::ostream* os) { *os << c.golden; }
class GoldenSettingsTest : public ::testing::TestWithParam<SettingsCase> {};

TEST_P(GoldenSettingsTest, AreWhatTransformersComputes) {
  const std::vector<std::string> cases = testing::GoldenCases("hf");
  if (std::find(cases.begin(), cases.end(), GetParam().golden) == cases.end()) {
    GTEST_SKIP() << "not in this golden tree";
  }
  const Configuration hf = GoldenConfig(GetParam().golden);
  Configuration want = Common(hf);
  for (const Configuration& part : GetParam().parts) {
    for (const auto& [name, value] : part) want[name] = value;
  }
  const auto settings = ModelSettings(hf);
  ASSERT_THAT(settings, IsOk());
  for (const auto& [name, value] : want) {
    ASSERT_TRUE(settings->contains(name)) << name;
    EXPECT_EQ(FormatValue(settings->at(name)), FormatValue(value)) << name;
  }
  for (const auto& [name, value] : *settings) EXPECT_TRUE(want.contains(name)) << name;
}

INSTANTIATE_TEST_SUITE_P(
    All, GoldenSettingsTest,
    ::testing::Values(SettingsCase{"llama-bias-fp16",
                                   {{{"kv_channels", 16},
                                     {"add_qkv_bias", true},
                                     {"add_attention_output_bias", true},
                                     {"add_bias_linear", true}}}},
                      SettingsCase{"llama-tied-fp32", {{{"kv_channels", 8}}}},
                      SettingsCase{"llama-untied-bf16", {{{"kv_channels", 8}}, kLlama3}},
                      SettingsCase{"llama-v4config-bf16", {{{"kv_channels", 8}}, kLlama3}},
                      SettingsCase{"qwen2-bf16", {{{"kv_channels", 8}, {"add_qkv_bias", true}}}},
                      SettingsCase{"qwen2-window-fp32",
                                   {{{"kv_channels", 8},
                                     {"add_qkv_bias", true},
                                     {"window_size", List({7, 0})},
                                     {"window_attn_skip_freq", List({0, 1, 1})}}}},
                      SettingsCase{"qwen3-tied-bf16",
                                   {{{"kv_channels", 16}, {"qk_layernorm", true}}}},
                      SettingsCase{"qwen3moe-norm-bf16",
                                   {{{"kv_channels", 16}, {"qk_layernorm", true}},
                                    Experts(8, 3, 24, List({1, 1}), true)}},
                      SettingsCase{"glm4moe-bf16",
                                   {{{"kv_channels", 16},
                                     {"add_qkv_bias", true},
                                     {"qk_layernorm", true},
                                     {"rotary_percent", 0.5}},
                                    DeepSeekV3(List({0, 1, 1}), true, 2.5),
                                    Groups(2, 1, "top_two_sum"),
                                    {{"moe_shared_expert_intermediate_size", 24}}}},
                      SettingsCase{"glm4moe-nonorm-bf16",
                                   {{{"kv_channels", 16}, {"rotary_percent", 0.5}},
                                    DeepSeekV3(List({1, 1}), true, 1.0),
                                    {{"num_experts", 4}}}},
                      SettingsCase{"qwen2moe-bf16",
                                   {{{"kv_channels", 6}, {"add_qkv_bias", true}},
                                    Experts(6, 3, 24, List({1, 1}), false),
                                    {{"moe_shared_expert_intermediate_size", 56},
                                     {"moe_shared_expert_gate", true}}}},
                      SettingsCase{"olmo2-bf16",
                                   {{{"kv_channels", 8},
                                     {"qk_layernorm", true},
                                     {"qk_layernorm_over_heads", true},
                                     {"post_layernorm", true}}}},
                      SettingsCase{"mixtral-bf16",
                                   {{{"kv_channels", 16}}, Experts(6, 2, 24, List({1, 1}), true)}},
                      SettingsCase{"mixtral-fused-fp32",
                                   {{{"kv_channels", 16}}, Experts(4, 2, 24, List({1, 1}), true)}},
                      SettingsCase{"deepseekv2-lite-bf16",
                                   {kLatent,
                                    Experts(8, 3, 24, List({0, 1, 1}), false),
                                    {{"moe_router_topk_scaling_factor", 1.0},
                                     {"moe_shared_expert_intermediate_size", 48}}}},
                      SettingsCase{"deepseekv2-group-bf16",
                                   {kLatent,
                                    kYarn,
                                    Experts(8, 3, 24, List({0, 1, 1}), false),
                                    Groups(4, 2, "max"),
                                    {{"q_lora_rank", 28},
                                     {"moe_router_topk_scaling_factor", 16.0},
                                     {"moe_shared_expert_intermediate_size", 48}}}},
                      SettingsCase{"deepseekv3-yarn-bf16",
                                   {kLatent,
                                    kYarn,
                                    DeepSeekV3(List({0, 1, 1}), true, 2.5),
                                    Groups(4, 2, "top_two_sum"),
                                    {{"q_lora_rank", 28}}}},
                      SettingsCase{"deepseekv3-noqlora-bf16",
                                   {kLatent, DeepSeekV3(List({0, 1, 1}), true, 2.446)}},
                      SettingsCase{"deepseekv3-mtp-bf16",
                                   {kLatent,
                                    DeepSeekV3(List({0, 1}), true, 2.5),
                                    Groups(2, 1, "top_two_sum"),
                                    {{"q_lora_rank", 28}}}},
                      SettingsCase{"deepseekv3-nonorm-fused-fp32",
                                   {kLatent,
                                    DeepSeekV3(List({0, 1, 1}), false, 1.5),
                                    Groups(2, 1, "top_two_sum"),
                                    {{"q_lora_rank", 28}}}}),
    [](const auto& test) {
      std::string name = test.param.golden;
      std::replace(name.begin(), name.end(), '-', '_');
      return name;
    });

Configuration TinyQwen2() {
  return {{"model_type", "qwen2"},    {"num_hidden_layers", 3}, {"hidden_size", 12},
          {"num_attention_heads", 4}, {"vocab_size", 10},       {"intermediate_size", 20},
          {"sliding_window", 5},      {"max_window_layers", 2}, {"rms_norm_eps", 1e-6}};
}

TEST(ModelSettings, SlideInQwenOnlyWhereItIsSwitchedOn) {
  Configuration config = TinyQwen2();
  auto settings = ModelSettings(config);
  ASSERT_THAT(settings, IsOk());
  EXPECT_FALSE(settings->contains("window_size"));
  config["use_sliding_window"] = true;
  settings = ModelSettings(config);
  ASSERT_THAT(settings, IsOk());
  EXPECT_EQ(settings->at("window_size"), List({4, 0}));
  EXPECT_EQ(settings->at("window_attn_skip_freq"), List({0, 0, 1}));
  // Llama has no such attention, whatever a left-over key says.
  config["model_type"] = "llama";
  settings = ModelSettings(config);
  ASSERT_THAT(settings, IsOk());
  EXPECT_FALSE(settings->contains("window_size"));
}

TEST(ModelSettings, ListEverythingThatTheTrainerWouldComputeDifferently) {
  Configuration config = TinyQwen2();
  config["hidden_act"] = "gelu";
  config["rope_scaling.type"] = "dynamic";
  config["scoring_func"] = "tanh";
  const auto settings = ModelSettings(config);
  ASSERT_THAT(settings, FailsWith(ErrorKind::kUnsupported));
  EXPECT_EQ(settings.status().problems().size(), 3U);
}

Configuration TinyMistral() {
  Configuration config = TinyQwen2();
  config["model_type"] = "mistral";
  return config;
}

TEST(ModelSettings, SlideInMistralWhereItsLayersSay) {
  Configuration config = TinyMistral();
  EXPECT_FALSE(ModelSettings(config)->contains("window_attn_skip_freq"));
  config["layer_types"] = Value::List{"full_attention", "sliding_attention", "full_attention"};
  EXPECT_EQ(ModelSettings(config)->at("window_attn_skip_freq"), List({0, 1, 0}));
}

Configuration TinyGlm() {
  Configuration config = TinyQwen2();
  config["model_type"] = "glm4_moe";
  config["num_key_value_heads"] = 2;
  config["head_dim"] = 8;
  config["n_routed_experts"] = 4;
  config["num_experts_per_tok"] = 2;
  config["moe_intermediate_size"] = 8;
  return config;
}

TEST(ModelSettings, RotateThePartOfAHeadThatTheClassDoes) {
  const auto rotary_percent = [](Configuration config) {
    EXPECT_THAT(ReadAsClass(config), IsOk());
    return ModelSettings(config).value().at("rotary_percent");
  };
  Configuration config = TinyGlm();
  EXPECT_EQ(rotary_percent(config), Value(0.5));
  config["partial_rotary_factor"] = 0.25;
  EXPECT_EQ(rotary_percent(config), Value(0.25));
  config["rope_parameters.partial_rotary_factor"] = 1;  // counts more
  EXPECT_EQ(rotary_percent(config), Value(1.0));
  config = TinyGlm();
  config["partial_rotary_factor"] = Value();
  EXPECT_EQ(rotary_percent(config), Value(1.0));
}

// Qwen2-MoE slides in every second layer, up to one.
TEST(ModelSettings, SlideWhereTheClassOfExpertsDoes) {
  Configuration config = TinyQwen2();
  config["model_type"] = "qwen2_moe";
  config["num_hidden_layers"] = 4;
  config["num_experts"] = 0;
  config["use_sliding_window"] = true;
  config["max_window_layers"] = 3;
  EXPECT_EQ(ModelSettings(config).value().at("window_attn_skip_freq"), List({1, 0, 1, 0}));
  config["max_window_layers"] = 2;
  EXPECT_EQ(ModelSettings(config).value().at("window_attn_skip_freq"), List({1, 0, 0, 0}));
  config["layer_types"] =
      Value::List{"full_attention", "sliding_attention", "full_attention", "full_attention"};
  EXPECT_EQ(ModelSettings(config).value().at("window_attn_skip_freq"), List({0, 1, 0, 0}));
}

TEST(ModelSettings, HonourAnMlpWithBiasesAlone) {
  Configuration config = TinyMistral();
  config["model_type"] = "llama";
  config["mlp_bias"] = true;
  const Configuration settings = ModelSettings(config).value();
  EXPECT_EQ(settings.at("add_bias_linear"), Value(true));
  EXPECT_EQ(settings.at("add_qkv_bias"), Value(false));
  EXPECT_EQ(settings.at("add_attention_output_bias"), Value(false));
}

TEST(ModelSettings, TakeOtherNamesOfTheSameActivation) {
  Configuration config = TinyQwen2();
  config["hidden_act"] = "swish";
  EXPECT_THAT(ModelSettings(config), IsOk());
}

struct RefusedCase {
  const char* name;  // the key that must be named
  Configuration changes;
};
void PrintTo(const RefusedCase& c, std::ostream* os) { *os << c.name; }
class RefusedConfigTest : public ::testing::TestWithParam<RefusedCase> {};

TEST_P(RefusedConfigTest, NamesTheKey) {
  Configuration config = TinyQwen2();
  for (const auto& [name, value] : GetParam().changes) config[name] = value;
  const auto settings = ModelSettings(config);
  ASSERT_THAT(settings, FailsWith(ErrorKind::kUnsupported));
  ASSERT_EQ(settings.status().problems().size(), 1U);
  EXPECT_NE(settings.status().first().message.find(GetParam().name), std::string::npos)
      << settings.status().first().message;
}

INSTANTIATE_TEST_SUITE_P(
    All, RefusedConfigTest,
    ::testing::Values(
        RefusedCase{"partial_rotary_factor", {{"partial_rotary_factor", 0.5}}},
        RefusedCase{"partial_rotary_factor",
                    {{"model_type", "llama"}, {"rope_parameters.partial_rotary_factor", 0.25}}},
        RefusedCase{"partial_rotary_factor",
                    {{"model_type", "glm4_moe"},
                     {"n_routed_experts", 4},
                     {"n_group", 1},
                     {"head_dim", 6},
                     {"partial_rotary_factor", 0.5}}},
        RefusedCase{"layer_types",
                    {{"model_type", "llama"},
                     {"layer_types",
                      Value::List{"sliding_attention", "full_attention", "full_attention"}}}},
        RefusedCase{"layer_types",
                    {{"layer_types",
                      Value::List{"full_attention", "chunked_attention", "full_attention"}}}},
        RefusedCase{"layer_types", {{"layer_types", Value::List{"full_attention"}}}},
        RefusedCase{"rope_interleave", {{"rope_interleave", true}}},
        RefusedCase{"scoring_func", {{"scoring_func", "sigmoid"}}},
        RefusedCase{"topk_method", {{"topk_method", "noaux_tc"}}},
        RefusedCase{"is_causal", {{"is_causal", false}}},
        RefusedCase{"sliding_window", {{"model_type", "mistral"}, {"sliding_window", 0}}},
        RefusedCase{"sliding_window", {{"use_sliding_window", true}, {"sliding_window", -1}}},
        RefusedCase{
            "num_experts_per_tok",
            {{"model_type", "mixtral"}, {"num_local_experts", 4}, {"num_experts_per_tok", 0}}},
        RefusedCase{
            "num_experts_per_tok",
            {{"model_type", "mixtral"}, {"num_local_experts", 4}, {"num_experts_per_tok", 5}}},
        RefusedCase{"rope_parameters.factor",
                    {{"rope_parameters.rope_type", "linear"}, {"rope_parameters.factor", 0}}},
        RefusedCase{"rope_theta", {{"rope_theta", 0.0}}},
        RefusedCase{"rope_theta", {{"rope_parameters.rope_theta", -1}}},
        // What differs from layer to layer: nothing here computes it.
        RefusedCase{"rope_parameters.full_attention.rope_theta",
                    {{"rope_parameters.full_attention.rope_theta", 5e5}}},
        RefusedCase{"per_layer_config.1.hidden_size", {{"per_layer_config.1.hidden_size", 24}}},
        // Transformers fails with these nulls, or takes them for false.
        RefusedCase{"rope_theta",
                    {{"model_type", "mixtral"}, {"num_local_experts", 4}, {"rope_theta", Value()}}},
        RefusedCase{"rope_parameters.rope_theta", {{"rope_parameters.rope_theta", Value()}}},
        RefusedCase{"rms_norm_eps", {{"rms_norm_eps", Value()}}},
        RefusedCase{"tie_word_embeddings", {{"tie_word_embeddings", Value()}}},
        RefusedCase{"norm_topk_prob",
                    {{"model_type", "qwen3_moe"}, {"num_experts", 4}, {"norm_topk_prob", Value()}}},
        RefusedCase{"rope_interleave", {{"rope_interleave", Value()}}},
        RefusedCase{"rope_parameters.truncate",
                    {{"rope_parameters.rope_type", "yarn"},
                     {"rope_parameters.factor", 2.0},
                     {"rope_parameters.truncate", Value()}}},
        RefusedCase{"rope_parameters.factor",
                    {{"rope_parameters.rope_type", "linear"},
                     {"rope_parameters.factor", Value()},
                     {"max_position_embeddings", 8}}},
        RefusedCase{"n_group",
                    {{"model_type", "deepseek_v3"},
                     {"kv_lora_rank", 2},
                     {"qk_nope_head_dim", 2},
                     {"qk_rope_head_dim", 2},
                     {"v_head_dim", 2},
                     {"n_routed_experts", 4},
                     {"n_group", Value()}}},
        RefusedCase{"rope_parameters.stretch", {{"rope_parameters.stretch", 2}}}),
    [](const auto& test) { return "Number" + std::to_string(test.index); });

TEST(ModelSettings, TakeANullWhereItIsAnAnswer) {
  for (const char* key : {"num_key_value_heads", "head_dim", "layer_types", "attention_dropout",
                          "q_lora_rank", "clip_qkv", "quantization_config", "pad_token_id"}) {
    Configuration config = TinyQwen2();
    const Configuration without = ModelSettings(config).value();
    config[key] = Value();
    EXPECT_THAT(ModelSettings(config), IsOkAndHolds(without)) << key;
  }
}

TEST(ModelSettings, SayWhatIsRightInTheWordsOfTheFile) {
  Configuration config = TinyQwen2();
  config["hidden_act"] = "gelu";
  const Status refused = ModelSettings(config).status();
  EXPECT_EQ(refused.first().expected, "silu or swish");
  EXPECT_EQ(refused.first().actual, "hidden_act = \"gelu\"");
}

// Transformers does not read these keys, whatever DeepSeek's own code or another family makes of
// them.
TEST(ModelSettings, LeaveKeysAloneThatTheClassDoesNotRead) {
  Configuration config = TinyQwen2();
  config["model_type"] = "qwen3_moe";
  config["num_experts"] = 4;
  config["num_experts_per_tok"] = 2;
  config["moe_intermediate_size"] = 8;
  Configuration more = config;
  for (const char* key : {"shared_expert_intermediate_size", "moe_layer_freq", "n_shared_experts",
                          "kv_lora_rank", "first_k_dense_replace", "mlp_bias", "clip_qkv"}) {
    more[key] = 2;
  }
  ASSERT_THAT(ReadAsClass(config), IsOk());
  ASSERT_THAT(ReadAsClass(more), IsOk());
  EXPECT_EQ(ModelSettings(more).value(), ModelSettings(config).value());
}

TEST(ModelSettings, NormaliseOverAllHeadsAndRefuseClippedAttention) {
  Configuration config = TinyQwen2();
  config["model_type"] = "olmoe";
  config["num_experts"] = 4;
  config["num_experts_per_tok"] = 2;
  const auto settings = ModelSettings(config);
  ASSERT_THAT(settings, IsOk());
  EXPECT_EQ(settings->at("qk_layernorm"), Value(true));
  EXPECT_EQ(settings->at("qk_layernorm_over_heads"), Value(true));
  config["clip_qkv"] = 2.0;
  const auto clipped = ModelSettings(config);
  ASSERT_THAT(clipped, FailsWith(ErrorKind::kUnsupported));
  ASSERT_EQ(clipped.status().problems().size(), 1U);
  EXPECT_NE(clipped.status().first().message.find("clip_qkv"), std::string::npos);
}

TEST(ModelSettings, NameTheFamiliesOfWhichTheyAre) {
  Configuration config = TinyQwen2();
  config["model_type"] = "gemma2";
  const auto settings = ModelSettings(config);
  ASSERT_THAT(settings, FailsWith(ErrorKind::kUnsupported));
  EXPECT_NE(settings.status().first().hint.find("qwen3_moe"), std::string::npos);
}

TEST(ModelSettings, DoNotAskHowWeightsAreStored) {
  Configuration config = TinyQwen2();
  const auto plain = ModelSettings(config);
  config["quantization_config.quant_method"] = "fp8";
  const auto quantised = ModelSettings(config);
  ASSERT_THAT(quantised, IsOk());
  EXPECT_EQ(*quantised, *plain);
}

}  // namespace
}  // namespace ckpt
