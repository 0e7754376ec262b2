#include "converters/config/run_args.h"

#include <set>
#include <string>

#include <gmock/gmock.h>

#include "converters/config/megatron_args.h"
#include "converters/config/model_settings.h"
#include "converters/config/run_settings.h"
#include "converters/families/family_registry.h"
#include "tests/converters/config/args_fixture.h"
#include "tests/testing/matchers.h"
#include "trainer/model/settings_reader.h"
#include "trainer/step/parse_train_config.h"

namespace ckpt {
namespace {

using layout::Configuration;
using layout::Value;
using testing::FailsWith;
using testing::GoldenConfig;
using testing::IsOk;

// Settings as ckpt-train knows them: complete. The keys are a few; what is not here does not matter
// to the case.
Configuration SomeSettings() {
  return {{"num_layers", 2},
          {"hidden_size", 48},
          {"ffn_hidden_size", 60},
          {"num_attention_heads", 4},
          {"num_query_groups", 2},
          {"kv_channels", 12},
          {"vocab_size", 131},
          {"padded_vocab_size", 131},
          {"untie_embeddings_and_output_weights", true},
          {"normalization", "RMSNorm"},
          {"norm_epsilon", 1e-5},
          {"swiglu", true},
          {"add_bias_linear", false},
          {"add_qkv_bias", false},
          {"position_embedding_type", "rope"},
          {"max_position_embeddings", 0},
          {"rotary_base", 10000.0},
          {"rope_scaling_type", "none"},
          {"rotary_scaling_factor", 1.0},
          {"num_experts", 0},
          {"softmax_scale", 0.0},
          {"window_size", Value()},
          {"main_grads_dtype", Value()},
          {"micro_batch_size", 1},
          {"global_batch_size", 8},
          {"seq_length", 32},
          {"lr", 4e-3},
          {"weight_decay", 0.1},
          {"lr_decay_iters", 12},
          {"seed", 1234},
          {"reduction", "canonical"}};
}

Configuration Present(Configuration settings) {
  std::erase_if(settings, [](const auto& setting) { return setting.second.is_null(); });
  return settings;
}

// The arguments of a run, as a reader of its checkpoint finds them.
Configuration Stored(const Configuration& settings, const NamedValues& more = {}) {
  const auto args = RunArgs(settings, {.iteration = 3, .consumed_train_samples = 24}, more);
  EXPECT_THAT(args, IsOk());
  return args.ok() ? testing::ByName(*args) : Configuration();
}

TEST(RunArgs, SaysWhatMegatronChecksInItsWords) {
  const Configuration args = Stored(SomeSettings());
  const Configuration expected = {{"num_layers", 2},
                                  {"hidden_size", 48},
                                  {"num_attention_heads", 4},
                                  {"add_position_embedding", true},
                                  {"num_query_groups", 2},
                                  {"group_query_attention", true},
                                  {"layernorm_epsilon", 1e-5},
                                  {"rotary_base", 10000},
                                  {"num_experts", Value()},
                                  {"max_position_embeddings", 32},
                                  {"softmax_scale", Value()},
                                  {"start_weight_decay", 0.1},
                                  {"iteration", 3},
                                  {"consumed_train_samples", 24},
                                  {"global_batch_size", 8},
                                  {"skipped_train_samples", 0},
                                  {"lr_decay_iters", 12},
                                  {"ckpt_format", "fsdp_dtensor"}};
  for (const auto& [name, value] : expected) {
    ASSERT_TRUE(args.contains(name)) << name;
    EXPECT_EQ(args.at(name), value) << name;
  }
}

TEST(RunArgs, GiveEverySettingBack) {
  EXPECT_EQ(RunSettings(Stored(SomeSettings())).value(), Present(SomeSettings()));
}

TEST(RunArgs, GiveBackWhatMegatronHasNoWordsFor) {
  Configuration settings = SomeSettings();
  settings["add_attention_output_bias"] = true;
  settings["rope_scaling_type"] = "llama3";
  settings["rotary_scaling_factor"] = 32.0;
  settings["original_max_position_embeddings"] = 4096;
  settings["low_freq_factor"] = 2.0;
  settings["num_experts"] = 16;
  settings["moe_router_topk"] = 6;
  settings["moe_router_num_groups"] = 4;
  settings["moe_router_group_topk"] = 2;  // three of a group: more than Megatron's checkpoints mean
  settings["moe_router_group_score"] = "max";
  settings["frozen"] = Value::List{"embedding.*"};
  const Configuration args = Stored(settings);
  EXPECT_EQ(args.at("ckptkit_reduction"), Value("canonical"));
  EXPECT_EQ(args.at("ckptkit_original_max_position_embeddings"), Value(4096));
  EXPECT_EQ(RunSettings(args).value(), Present(settings));
}

TEST(RunArgs, GiveMegatronALengthOfDecay) {
  Configuration settings = SomeSettings();
  settings["lr_decay_iters"] = 0;
  settings["train_iters"] = 50;
  const Configuration args = Stored(settings);
  EXPECT_EQ(args.at("lr_decay_iters"), Value(50));
  EXPECT_EQ(RunSettings(args).value(), Present(settings));
}

TEST(RunArgs, RecordHowTheWorkWasSharedAndLeaveItOut) {
  Configuration settings = SomeSettings();
  settings["expert_model_parallel_size"] = 2;
  settings["weight_slots"] = 3;
  settings["init"] = "hf:model";
  const Configuration args = Stored(settings);
  EXPECT_EQ(args.at("expert_model_parallel_size"), Value(2));
  EXPECT_FALSE(args.contains("ckptkit_expert_model_parallel_size"));
  EXPECT_EQ(args.at("ckptkit_weight_slots"), Value(3));
  EXPECT_EQ(args.at("ckptkit_init"), Value("hf:model"));
  EXPECT_EQ(RunSettings(args).value(), Present(SomeSettings()));
}

TEST(RunArgs, TakeFactsThatAreNoSettings) {
  const Configuration args =
      Stored(SomeSettings(), {{"transformer_impl", "local"},
                              {"num_experts", 7},  // wins over what the settings say
                              {"ckptkit_state_digest", "abc"},
                              {"ckptkit_next_loss", 2.5}});
  EXPECT_EQ(args.at("transformer_impl"), Value("local"));
  EXPECT_EQ(args.at("num_experts"), Value(7));
  EXPECT_EQ(args.at("ckptkit_state_digest"), Value("abc"));
  EXPECT_EQ(RunSettings(args).value(), Present(SomeSettings()));
}

TEST(RunArgs, OfALaterVersionAreRefused) {
  Configuration args = Stored(SomeSettings());
  args[std::string(kArgsVersion)] = 2;
  EXPECT_THAT(RunSettings(args), FailsWith(ErrorKind::kUnsupported));
}

// Without the mark of ours, they are Megatron's, and its arguments alone speak.
TEST(RunArgs, AreMegatronsOnceItSavedThemAgain) {
  Configuration args = Stored(SomeSettings());
  std::erase_if(args, [](const auto& arg) { return arg.first.starts_with(kOwnPrefix); });
  const auto settings = RunSettings(args);
  ASSERT_THAT(settings, IsOk());
  EXPECT_EQ(settings->at("norm_epsilon"), Value(1e-5));
  EXPECT_EQ(settings->at("rotary_base"), Value(10000));
  EXPECT_FALSE(settings->contains("reduction"));
}

// Every setting of a run on 4 ranks.
Configuration Effective(const Configuration& given) {
  trainer::SettingsReader reader(given);
  EXPECT_THAT(trainer::ParseTrainConfig(reader, 4), IsOk());
  return reader.effective();
}

// Every published model keeps its settings, and is recognised without its config.json.
class ModelArgsTest : public ::testing::TestWithParam<std::string> {};

TEST_P(ModelArgsTest, DescribeTheModel) {
  const Configuration config = GoldenConfig(GetParam());
  const auto settings = ModelSettings(config);
  ASSERT_THAT(settings, IsOk());
  const Configuration args = Stored(*settings);
  EXPECT_EQ(RunSettings(args).value(), *settings);

  const auto known = ConfigFromMegatronArgs(args);
  ASSERT_THAT(known, IsOk());
  EXPECT_THAT(FindFamily(*known), IsOk());
  for (const std::string name :
       {"num_hidden_layers", "hidden_size", "intermediate_size", "vocab_size",
        "num_attention_heads", "tie_word_embeddings", "kv_lora_rank"}) {
    if (!config.contains(name)) continue;
    EXPECT_EQ(known->contains(name) ? known->at(name) : Value(), config.at(name)) << name;
  }
}

// A run whose settings have been through a checkpoint is the same run.
TEST_P(ModelArgsTest, MakeTheSameRunAgain) {
  Configuration given = ModelSettings(GoldenConfig(GetParam())).value();
  given.insert({{"seq_length", 16},
                {"micro_batch_size", 1},
                {"global_batch_size", 8},
                {"bf16", true},
                {"lr_warmup_iters", 2},
                {"lr_decay_iters", 12},
                {"lr_decay_style", "cosine"}});
  const Configuration before = Effective(given);
  const auto settings = RunSettings(Stored(before));
  ASSERT_THAT(settings, IsOk());
  const Configuration after = Effective(*settings);
  for (const auto& [name, value] : before) {
    EXPECT_EQ(layout::FormatValue(after.at(name)), layout::FormatValue(value)) << name;
  }
}

// What differs means the same: a list of ones, a factor that nothing uses, a bound that the
// settings do not know. Or the trainer leaves it out: layers that predict further tokens.
TEST_P(ModelArgsTest, SayWhatAConvertedCheckpointOfTheModelSays) {
  const std::set<std::string> differs = {"fp16",
                                         "max_position_embeddings",
                                         "moe_grouped_gemm",
                                         "moe_layer_freq",
                                         "mscale_all_dim",
                                         "mtp_num_layers",
                                         "rope_scaling_factor",
                                         "rotary_scaling_factor",
                                         "transformer_impl"};
  const Configuration config = GoldenConfig(GetParam());
  const auto settings = ModelSettings(config);
  const auto converted = MegatronArgs(config);
  ASSERT_THAT(settings, IsOk());
  ASSERT_THAT(converted, IsOk());
  const Configuration args = Stored(*settings);
  for (const auto& [name, value] : converted->values) {
    if (value.is_null() || !args.contains(name) || differs.contains(name)) continue;
    EXPECT_EQ(layout::FormatValue(args.at(name)), layout::FormatValue(value)) << name;
  }
}

INSTANTIATE_TEST_SUITE_P(Golden, ModelArgsTest, ::testing::ValuesIn(testing::TrainedModels()),
                         [](const auto& test) { return testing::TestNameOf(test.param); });

}  // namespace
}  // namespace ckpt
