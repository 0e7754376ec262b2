#include "converters/config/run_settings.h"

#include <string>

#include <gmock/gmock.h>

#include "tests/testing/matchers.h"

namespace ckpt {
namespace {

using layout::Configuration;
using layout::Value;
using testing::FailsWith;
using testing::IsOk;

// As few arguments as a run can have; the others are at Megatron's defaults.
Configuration FewArgs() {
  return {{"num_layers", 2},        {"hidden_size", 8},
          {"ffn_hidden_size", 16},  {"num_attention_heads", 2},
          {"num_query_groups", 1},  {"padded_vocab_size", 32},
          {"hidden_dropout", 0.0},  {"attention_dropout", 0.0},
          {"swiglu", true},         {"micro_batch_size", 1},
          {"global_batch_size", 8}, {"seq_length", 16},
          {"train_iters", 100},     {"lr", 1e-3}};
}

Value Setting(const Configuration& args, const std::string& name) {
  const auto settings = RunSettings(args);
  EXPECT_THAT(settings, IsOk());
  if (!settings.ok() || !settings->contains(name)) return {};
  return settings->at(name);
}

std::string Refusal(const std::string& name, Value value) {
  Configuration args = FewArgs();
  args[name] = std::move(value);
  const auto settings = RunSettings(args);
  EXPECT_THAT(settings, FailsWith(ErrorKind::kUnsupported)) << name;
  return settings.ok() ? "" : settings.status().first().message;
}

TEST(RunSettings, TakesMegatronsDefaultsForWhatIsMissing) {
  EXPECT_EQ(Setting(FewArgs(), "normalization"), Value("LayerNorm"));
  EXPECT_EQ(Setting(FewArgs(), "add_bias_linear"), Value(true));
  EXPECT_EQ(Setting(FewArgs(), "untie_embeddings_and_output_weights"), Value(false));
  EXPECT_EQ(Setting(FewArgs(), "position_embedding_type"), Value("learned_absolute"));
  EXPECT_EQ(Setting(FewArgs(), "lr_decay_style"), Value("linear"));
  EXPECT_EQ(Setting(FewArgs(), "bf16"), Value(false));
  // Whatever num_query_groups says: the run did not group.
  EXPECT_EQ(Setting(FewArgs(), "num_query_groups"), Value(2));
}

TEST(RunSettings, DecaysUntilTheRunEndsUnlessToldOtherwise) {
  Configuration args = FewArgs();
  EXPECT_EQ(Setting(args, "lr_decay_iters"), Value(100));
  args["lr_decay_iters"] = 80;
  EXPECT_EQ(Setting(args, "lr_decay_iters"), Value(80));
  args["lr_warmup_fraction"] = 0.25;
  EXPECT_EQ(Setting(args, "lr_warmup_iters"), Value(20));
  args["lr_warmup_fraction"] = 0.33;
  EXPECT_THAT(RunSettings(args), FailsWith(ErrorKind::kUnsupported));
}

TEST(RunSettings, CountsSamplesInBatches) {
  Configuration args = FewArgs();
  args.erase("train_iters");
  args["train_samples"] = 1600;
  args["lr_warmup_samples"] = 80;
  EXPECT_EQ(Setting(args, "lr_decay_iters"), Value(200));
  EXPECT_EQ(Setting(args, "lr_warmup_iters"), Value(10));
  args["lr_warmup_samples"] = 81;
  EXPECT_THAT(RunSettings(args), FailsWith(ErrorKind::kUnsupported));
}

TEST(RunSettings, LeavesExpertsOutOfADenseModel) {
  Configuration args = FewArgs();
  args["moe_router_topk"] = 2;
  args["moe_router_load_balancing_type"] = "aux_loss";
  EXPECT_EQ(Setting(args, "moe_router_topk"), Value());
  args["num_experts"] = 4;
  EXPECT_EQ(Setting(args, "moe_router_topk"), Value(2));
  EXPECT_EQ(Setting(args, "moe_router_load_balancing_type"), Value("aux_loss"));
}

TEST(RunSettings, SaysHowGroupsOfExpertsCompete) {
  Configuration args = FewArgs();
  args["num_experts"] = 16;
  args["moe_router_num_groups"] = 4;
  args["moe_router_group_topk"] = 2;
  args["moe_router_topk"] = 4;
  EXPECT_EQ(Setting(args, "moe_router_group_score"), Value("top_two_sum"));
  args["moe_router_topk"] = 2;
  EXPECT_EQ(Setting(args, "moe_router_group_score"), Value("max"));
  args["moe_router_topk"] = 3;  // Megatron rounds down
  EXPECT_EQ(Setting(args, "moe_router_group_score"), Value("max"));
  args["moe_router_topk"] = 6;
  EXPECT_THAT(RunSettings(args), FailsWith(ErrorKind::kUnsupported));
  args["moe_router_topk"] = 1;
  EXPECT_THAT(RunSettings(args), FailsWith(ErrorKind::kUnsupported));
}

TEST(RunSettings, CarriesScaledPositions) {
  Configuration args = FewArgs();
  args["position_embedding_type"] = "rope";
  args["rotary_scaling_factor"] = 1.0;  // of latent attention, and there all the same
  EXPECT_EQ(Setting(args, "rope_scaling_type"), Value());
  EXPECT_EQ(Setting(args, "rotary_scaling_factor"), Value());
  args["use_rope_scaling"] = true;
  EXPECT_EQ(Setting(args, "rope_scaling_type"), Value("llama3"));
  EXPECT_EQ(Setting(args, "rotary_scaling_factor"), Value(8.0));
  EXPECT_EQ(Setting(args, "original_max_position_embeddings"), Value(8192));
  args["use_rope_scaling"] = false;
  args["multi_latent_attention"] = true;
  EXPECT_EQ(Setting(args, "rope_scaling_type"), Value("yarn"));
  EXPECT_EQ(Setting(args, "rotary_interleaved"), Value(true));
  EXPECT_EQ(Setting(args, "mscale_all_dim"), Value(0));
}

TEST(RunSettings, RefusesWhatTheTrainerDoesNotCompute) {
  EXPECT_EQ(Refusal("fp16", true), "the run scales its losses for float16");
  EXPECT_EQ(Refusal("hidden_dropout", 0.1), "the model has dropout");
  EXPECT_EQ(Refusal("swiglu", false), "the MLP's GELU is the tanh approximation");
  EXPECT_EQ(Refusal("optimizer", "muon"), "the optimizer is neither Adam nor SGD");
  EXPECT_EQ(Refusal("rampup_batch_size", Value::List{8, 8, 100}), "the batch grows on the way");
  EXPECT_EQ(Refusal("layernorm_zero_centered_gamma", true), "norms store their weights less one");
  EXPECT_EQ(Refusal("mtp_num_layers", 1), "the model predicts several tokens");
  EXPECT_EQ(Refusal("heterogeneous_layers_config_encoded_json", R"({"block_configs": []})"),
            "layers differ in shape");
}

// Its weights may be trained further whatever the run did to them.
TEST(StoredModelSettings, LookAtTheModelAlone) {
  Configuration args = FewArgs();
  args["fp16"] = true;
  args["optimizer"] = "muon";
  args["lr_warmup_fraction"] = 0.333;
  const auto settings = StoredModelSettings(args);
  ASSERT_THAT(settings, IsOk());
  EXPECT_EQ(settings->at("num_layers"), Value(2));
  EXPECT_FALSE(settings->contains("lr"));
  args["hidden_dropout"] = 0.1;
  EXPECT_THAT(StoredModelSettings(args), FailsWith(ErrorKind::kUnsupported));
}

// Shapes do not depend on what is computed with the weights.
TEST(StoredModelShape, ToleratesWhatTheTrainerDoesNotCompute) {
  Configuration args = FewArgs();
  args["hidden_dropout"] = 0.1;
  const auto settings = StoredModelShape(args);
  ASSERT_THAT(settings, IsOk());
  EXPECT_EQ(settings->at("num_layers"), Value(2));
  args["ckptkit_args_version"] = 2;
  EXPECT_THAT(StoredModelShape(args), FailsWith(ErrorKind::kUnsupported));
}

}  // namespace
}  // namespace ckpt
