#include "converters/config/megatron_args.h"

#include <string>
#include <vector>

#include <gmock/gmock.h>

#include "converters/config/translation_table.h"
#include "tests/converters/config/args_fixture.h"
#include "tests/testing/matchers.h"

namespace ckpt {
namespace {

using layout::Configuration;
using layout::Value;
using testing::ArgsOf;
using ::testing::ElementsAre;
using testing::FailsWith;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using testing::IsOk;

Configuration MixedQwen3Moe() {
  return {{"model_type", "qwen3_moe"},      {"num_hidden_layers", 4},     {"hidden_size", 12},
          {"num_attention_heads", 4},       {"num_key_value_heads", 2},   {"vocab_size", 160},
          {"intermediate_size", 20},        {"moe_intermediate_size", 8}, {"num_local_experts", 4},
          {"num_experts_per_tok", 3},       {"decoder_sparse_step", 2},   {"norm_topk_prob", false},
          {"max_position_embeddings", 128}, {"rope_theta", 10000.0},      {"dtype", "bfloat16"}};
}

TEST(MegatronArgs, SaysWhatMegatronChecksBeforeItLoads) {
  const Configuration named = ArgsOf(MixedQwen3Moe());
  EXPECT_EQ(named.at("num_layers"), Value(4));
  EXPECT_EQ(named.at("hidden_size"), Value(12));
  EXPECT_EQ(named.at("num_attention_heads"), Value(4));
  EXPECT_EQ(named.at("add_position_embedding"), Value(true));
  EXPECT_EQ(named.at("num_query_groups"), Value(2));
  EXPECT_EQ(named.at("kv_channels"), Value(3));
  EXPECT_EQ(named.at("rotary_base"), Value(10000));
  EXPECT_EQ(named.at("make_vocab_size_divisible_by"), Value(32));
  EXPECT_EQ(named.at("moe_layer_freq"), Value(Value::List{0, 1, 0, 1}));
  EXPECT_EQ(named.at("moe_router_pre_softmax"), Value(true));
  EXPECT_EQ(named.at("qk_layernorm"), Value(true));
  EXPECT_EQ(named.at("bf16"), Value(true));
  EXPECT_EQ(named.at("transformer_impl"), Value("transformer_engine"));
}

TEST(MegatronArgs, AreNoneWhereADenseModelHasNothingToSay) {
  Configuration config = MixedQwen3Moe();
  config["model_type"] = "llama";
  config.erase("num_local_experts");
  const Configuration named = ArgsOf(config);
  EXPECT_EQ(named.at("num_experts"), Value());
  EXPECT_EQ(named.at("moe_layer_freq"), Value(1));
}

TEST(MegatronArgs, RefusesModelsThatMegatronWouldComputeDifferently) {
  Configuration config = MixedQwen3Moe();
  config["hidden_act"] = "gelu";
  EXPECT_THAT(MegatronArgs(config), FailsWith(ErrorKind::kUnsupported));
}

TEST(MegatronArgs, CountTheLayersThatPredictFurtherTokens) {
  Configuration config = MixedQwen3Moe();
  EXPECT_EQ(ArgsOf(config).at("mtp_num_layers"), Value());
  config["num_nextn_predict_layers"] = 1;
  // The last of four layers is a mixture of experts, and a fifth would be none.
  const auto args = MegatronArgs(config);
  ASSERT_THAT(args, FailsWith(ErrorKind::kUnsupported));
  EXPECT_THAT(args.status().ToString(), HasSubstr("num_nextn_predict_layers"));
  config["decoder_sparse_step"] = 1;
  EXPECT_EQ(ArgsOf(config).at("mtp_num_layers"), Value(1));
}

// What `args` and the warnings say of a model whose positions are scaled.
struct ScaledPositions {
  Configuration args;
  std::vector<std::string> lost;
};

ScaledPositions Scaled(Configuration config, const Configuration& scaling) {
  for (const auto& [name, value] : scaling) config["rope_parameters." + name] = value;
  ScaledPositions scaled = {.args = ArgsOf(config), .lost = {}};
  for (const Problem& problem : testing::WarningsOf(config)) scaled.lost.push_back(problem.message);
  return scaled;
}

Configuration LatentAttention() {
  Configuration config = MixedQwen3Moe();
  config.erase("decoder_sparse_step");
  config["model_type"] = "deepseek_v3";
  config["norm_topk_prob"] = true;
  for (const char* name : {"q_lora_rank", "kv_lora_rank", "qk_nope_head_dim", "qk_rope_head_dim",
                           "v_head_dim", "n_routed_experts", "n_group", "topk_group"}) {
    config[name] = 4;
  }
  return config;
}

TEST(MegatronArgs, CarryYarnUnderTheNamesOfTheAttentionThatReadsThem) {
  const Configuration yarn = {
      {"rope_type", "yarn"},  {"factor", 40.0}, {"original_max_position_embeddings", 4096},
      {"beta_fast", 32},      {"beta_slow", 1}, {"mscale", 1.0},
      {"mscale_all_dim", 0.5}};
  ScaledPositions gpt = Scaled(MixedQwen3Moe(), yarn);
  EXPECT_THAT(gpt.lost, IsEmpty());
  EXPECT_EQ(gpt.args.at("position_embedding_type"), Value("yarn"));
  EXPECT_EQ(gpt.args.at("yarn_rotary_scaling_factor"), Value(40.0));
  EXPECT_EQ(gpt.args.at("yarn_original_max_position_embeddings"), Value(4096));
  EXPECT_EQ(gpt.args.at("yarn_mscale_all_dim"), Value(0.5));
  EXPECT_EQ(gpt.args.at("yarn_correction_range_round_to_int"), Value(true));
  EXPECT_EQ(gpt.args.at("mscale"), Value(1.0));  // of latent attention: Megatron's default

  ScaledPositions latent = Scaled(LatentAttention(), yarn);
  EXPECT_THAT(latent.lost, IsEmpty());
  EXPECT_EQ(latent.args.at("position_embedding_type"), Value("rope"));
  EXPECT_EQ(latent.args.at("rope_type"), Value("yarn"));
  EXPECT_EQ(latent.args.at("rotary_scaling_factor"), Value(40.0));
  EXPECT_EQ(latent.args.at("mscale_all_dim"), Value(0.5));
  EXPECT_EQ(latent.args.at("yarn_mscale_all_dim"), Value());
}

// Megatron's own defaults are those of a model that scales.
TEST(MegatronArgs, SayThatLatentAttentionDoesNotScale) {
  const ScaledPositions plain = Scaled(LatentAttention(), {});
  EXPECT_THAT(plain.lost, IsEmpty());
  EXPECT_EQ(plain.args.at("rotary_scaling_factor"), Value(1.0));
  EXPECT_EQ(plain.args.at("mscale"), Value(1.0));
  EXPECT_EQ(plain.args.at("mscale_all_dim"), Value(0.0));
}

TEST(MegatronArgs, CarryLinearScaling) {
  const ScaledPositions linear =
      Scaled(MixedQwen3Moe(), {{"rope_type", "linear"}, {"factor", 2.0}});
  EXPECT_THAT(linear.lost, IsEmpty());
  EXPECT_EQ(linear.args.at("rotary_seq_len_interpolation_factor"), Value(2.0));
}

TEST(MegatronArgs, WarnOfEveryScalingTheyCannotCarry) {
  const auto lost = [](const Configuration& config, const Configuration& scaling) {
    return Scaled(config, scaling).lost;
  };
  EXPECT_THAT(lost(MixedQwen3Moe(), {{"rope_type", "dynamic"}, {"factor", 2.0}}),
              ElementsAre(HasSubstr("in a way that the model does not know"),
                          HasSubstr("rope_scaling_type"), HasSubstr("rotary_scaling_factor")));
  EXPECT_THAT(lost(LatentAttention(), {{"rope_type", "linear"}, {"factor", 2.0}}),
              ElementsAre(HasSubstr("rope_scaling_type"), HasSubstr("rotary_scaling_factor")));
  const Configuration llama3 = {{"rope_type", "llama3"},
                                {"factor", 8.0},
                                {"low_freq_factor", 1.0},
                                {"high_freq_factor", 4.0},
                                {"original_max_position_embeddings", 8192}};
  EXPECT_THAT(lost(MixedQwen3Moe(), llama3), IsEmpty());
  Configuration other = llama3;
  other["high_freq_factor"] = 2.0;
  EXPECT_THAT(lost(MixedQwen3Moe(), other), ElementsAre(HasSubstr("high_freq_factor")));
  const Configuration yarn = {
      {"rope_type", "yarn"}, {"factor", 4.0}, {"attention_factor", 1.5}, {"truncate", false}};
  EXPECT_THAT(lost(LatentAttention(), yarn),
              ElementsAre(HasSubstr("yarn_correction_range_round_to_int"),
                          HasSubstr("rope_attention_factor")));
}

// Both factors of yarn or none decide; with one of them, Megatron takes the other from its
// defaults.
TEST(MegatronArgs, WarnOfHalfAYarnOnlyWhereItMeansSomethingElse) {
  const Configuration yarn = {{"rope_type", "yarn"}, {"factor", 4.0}};
  Configuration first = yarn;
  first["mscale"] = 1.0;
  EXPECT_THAT(Scaled(LatentAttention(), first).lost, IsEmpty());
  first["mscale"] = 0.7;
  EXPECT_THAT(Scaled(LatentAttention(), first).lost,
              ElementsAre(HasSubstr("yarn has an mscale without one for all dims")));
  EXPECT_THAT(Scaled(MixedQwen3Moe(), first).lost, IsEmpty());
  Configuration second = yarn;
  second["mscale_all_dim"] = 0.7;
  EXPECT_THAT(Scaled(LatentAttention(), second).lost, ElementsAre(HasSubstr("mscale")));
}

// Megatron-LM makes the options with the prefix of the others, and takes plain positions where
// `use_rotary_position_embeddings` is said.
TEST(MegatronArgs, SayYarnAsMegatronReadsIt) {
  Configuration model = MixedQwen3Moe();
  model["rope_parameters.rope_type"] = "yarn";
  model["rope_parameters.factor"] = 4.0;
  const auto made = MegatronArgs(model);
  ASSERT_THAT(made, IsOk());
  const Configuration args(made->values.begin(), made->values.end());
  EXPECT_EQ(args.at("position_embedding_type"), Value("yarn"));
  EXPECT_EQ(args.at("use_rotary_position_embeddings"), Value(false));
  EXPECT_EQ(args.at("rotary_scaling_factor"), Value(4.0));
  EXPECT_EQ(args.at("mscale"), Value(1.0));
  EXPECT_EQ(args.at("mscale_all_dim"), Value(0.0));

  Configuration of_run = args;
  for (const char* name : {"yarn_rotary_scaling_factor", "yarn_mscale", "yarn_mscale_all_dim"}) {
    of_run.erase(name);
  }
  EXPECT_THAT(*DifferencesFromArgs(model, of_run), IsEmpty());
  of_run["rotary_scaling_factor"] = 8.0;
  EXPECT_EQ(DifferencesFromArgs(model, of_run)->size(), 1U);
}

// What no setting says: the run's args say nothing of the kind.
// Megatron-LM leaves `vocab_size` unset and computes `padded_vocab_size`.
TEST(ShapeFromMegatronArgs, TakesNoRowsForTokens) {
  Configuration args = ArgsOf(MixedQwen3Moe());
  for (const bool is_there : {true, false}) {
    args["vocab_size"] = Value();
    if (!is_there) args.erase("vocab_size");
    const auto shape = ShapeFromMegatronArgs(args);
    ASSERT_THAT(shape, IsOk());
    EXPECT_FALSE(shape->contains("vocab_size"));
    EXPECT_EQ(shape->at("padded_vocab_size"), Value(160));
    const auto config = ConfigFromMegatronArgs(args);
    ASSERT_THAT(config, IsOk());
    EXPECT_EQ(config->at("vocab_size"), Value(160));
  }
  args["vocab_size"] = 150;
  EXPECT_EQ(ShapeFromMegatronArgs(args)->at("vocab_size"), Value(150));
}

TEST(DifferencesFromArgs, NamesWhatTheConfigurationMeansBeside) {
  const Configuration model = MixedQwen3Moe();
  const auto made = MegatronArgs(model);
  ASSERT_THAT(made, IsOk());
  const Configuration args(made->values.begin(), made->values.end());
  Configuration other = model;
  other["hidden_act"] = "gelu";
  const auto differences = DifferencesFromArgs(other, args);
  ASSERT_THAT(differences, IsOk());
  ASSERT_EQ(differences->size(), 1U);
  EXPECT_THAT(differences->front().message, HasSubstr("config.json means another model"));
}

TEST(ConfigFromMegatronArgs, ReadsLayerFrequenciesAsMegatronDoes) {
  Configuration args = {
      {"num_layers", 4},          {"hidden_size", 8},           {"ffn_hidden_size", 16},
      {"num_attention_heads", 2}, {"padded_vocab_size", 32},    {"max_position_embeddings", 64},
      {"swiglu", true},           {"normalization", "RMSNorm"}, {"add_bias_linear", false},
      {"num_experts", 2},         {"moe_router_topk", 1}};
  args["moe_layer_freq"] = 2;
  auto config = ConfigFromMegatronArgs(args);
  ASSERT_THAT(config, IsOk());
  EXPECT_EQ(config->at("mlp_only_layers"), Value(Value::List{1, 3}));
  args["moe_layer_freq"] = Value::List{0, 1, 1, 0};
  config = ConfigFromMegatronArgs(args);
  ASSERT_THAT(config, IsOk());
  EXPECT_EQ(config->at("mlp_only_layers"), Value(Value::List{0, 3}));
  EXPECT_FALSE(config->contains("num_nextn_predict_layers"));
  // Further layers are of the last one's kind.
  args["mtp_num_layers"] = 2;
  config = ConfigFromMegatronArgs(args);
  ASSERT_THAT(config, IsOk());
  EXPECT_EQ(config->at("mlp_only_layers"), Value(Value::List{0, 3, 4, 5}));
  EXPECT_EQ(config->at("num_nextn_predict_layers"), Value(2));
  args["moe_layer_freq"] = 3;
  EXPECT_EQ(ConfigFromMegatronArgs(args)->at("mlp_only_layers"), Value(Value::List{1, 2}));
  // One layer that predicts all further tokens.
  args["mtp_use_repeated_layer"] = true;
  EXPECT_EQ(ConfigFromMegatronArgs(args)->at("num_nextn_predict_layers"), Value(1));
  args["mtp_hybrid_override_pattern"] = "M*";
  EXPECT_THAT(ConfigFromMegatronArgs(args), FailsWith(ErrorKind::kUnsupported));
}

TEST(ConfigFromMegatronArgs, NamesTheActivation) {
  Configuration args = {{"num_layers", 4},         {"hidden_size", 8},
                        {"ffn_hidden_size", 16},   {"num_attention_heads", 2},
                        {"padded_vocab_size", 32}, {"max_position_embeddings", 64},
                        {"squared_relu", true}};
  EXPECT_EQ(ConfigFromMegatronArgs(args)->at("hidden_act"), Value("relu2"));
  args["squared_relu"] = false;
  EXPECT_EQ(ConfigFromMegatronArgs(args)->at("hidden_act"), Value("gelu_pytorch_tanh"));
}

TEST(ConfigFromMegatronArgs, ListsEverythingItCannotDescribe) {
  const auto config =
      ConfigFromMegatronArgs({{"normalization", "L2"}, {"multi_latent_attention", true}});
  ASSERT_THAT(config, FailsWith(ErrorKind::kUnsupported));
  EXPECT_EQ(config.status().problems().size(), 3U);
}

TEST(TranslationTable, RefusesLinesThatMeanNothing) {
  EXPECT_THAT(TranslationTable::Parse("a = 1\na = 2\n", "t"), FailsWith(ErrorKind::kBadMetadata));
  EXPECT_THAT(TranslationTable::Parse("nonsense\n", "t"), FailsWith(ErrorKind::kBadMetadata));
  EXPECT_THAT(TranslationTable::Parse("require true\n", "t"), FailsWith(ErrorKind::kBadMetadata));
  EXPECT_THAT(TranslationTable::Parse("include x\n", "t"), FailsWith(ErrorKind::kBadMetadata));
}

TEST(TranslationTable, NamesWhatIsWrongInTheSource) {
  const auto table =
      TranslationTable::Parse("let tied = tie_words ?? false\nuntie = not tied\n", "t");
  ASSERT_THAT(table, IsOk());
  const auto translated = table->Translate({{"tie_words", "false"}, {"other", 1}});
  ASSERT_THAT(translated, FailsWith(ErrorKind::kBadMetadata));
  EXPECT_THAT(translated.status().ToString(), HasSubstr("with tie_words = \"false\""));
}

}  // namespace
}  // namespace ckpt
