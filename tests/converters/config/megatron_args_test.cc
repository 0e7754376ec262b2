#include "converters/config/megatron_args.h"

#include <gtest/gtest.h>

#include "tests/testing/matchers.h"

namespace ckpt {
namespace {

using layout::Configuration;
using layout::Value;
using testing::FailsWith;
using testing::IsOk;

Configuration MixedQwen3Moe() {
  return {{"model_type", "qwen3_moe"},      {"num_hidden_layers", 4},     {"hidden_size", 12},
          {"num_attention_heads", 4},       {"num_key_value_heads", 2},   {"vocab_size", 160},
          {"intermediate_size", 20},        {"moe_intermediate_size", 8}, {"num_local_experts", 4},
          {"num_experts_per_tok", 3},       {"decoder_sparse_step", 2},   {"norm_topk_prob", false},
          {"max_position_embeddings", 128}, {"rope_theta", 10000.0},      {"dtype", "bfloat16"}};
}

TEST(MegatronArgs, SaysWhatMegatronChecksBeforeItLoads) {
  const auto args = MegatronArgs(MixedQwen3Moe());
  ASSERT_THAT(args, IsOk());
  const Configuration named(args->begin(), args->end());
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
  const auto args = MegatronArgs(config);
  ASSERT_THAT(args, IsOk());
  const Configuration named(args->begin(), args->end());
  EXPECT_EQ(named.at("num_experts"), Value());
  EXPECT_EQ(named.at("moe_layer_freq"), Value(1));
}

TEST(MegatronArgs, RefusesModelsThatMegatronWouldComputeDifferently) {
  Configuration config = MixedQwen3Moe();
  config["hidden_act"] = "gelu";
  EXPECT_THAT(MegatronArgs(config), FailsWith(ErrorKind::kUnsupported));
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
}

TEST(ConfigFromMegatronArgs, ListsEverythingItCannotDescribe) {
  const auto config = ConfigFromMegatronArgs({{"swiglu", false}, {"multi_latent_attention", true}});
  ASSERT_THAT(config, FailsWith(ErrorKind::kUnsupported));
  EXPECT_EQ(config.status().problems().size(), 3U);
}

TEST(TranslationTable, RefusesLinesThatMeanNothing) {
  EXPECT_THAT(TranslationTable::Parse("a = 1\na = 2\n", "t"), FailsWith(ErrorKind::kBadMetadata));
  EXPECT_THAT(TranslationTable::Parse("nonsense\n", "t"), FailsWith(ErrorKind::kBadMetadata));
  EXPECT_THAT(TranslationTable::Parse("require true\n", "t"), FailsWith(ErrorKind::kBadMetadata));
  EXPECT_THAT(TranslationTable::Parse("include x\n", "t"), FailsWith(ErrorKind::kBadMetadata));
}

}  // namespace
}  // namespace ckpt
