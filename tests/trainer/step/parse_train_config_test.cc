#include "trainer/step/parse_train_config.h"

#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/testing/matchers.h"

namespace ckpt::trainer {
namespace {

using ::testing::HasSubstr;
using testing::IsOk;
using ::testing::Not;

layout::Configuration Small() {
  return {{"num_layers", 2},          {"hidden_size", 16}, {"ffn_hidden_size", 32},
          {"num_attention_heads", 4}, {"vocab_size", 50},  {"seq_length", 8}};
}

layout::Configuration SmallMoe() {
  layout::Configuration settings = Small();
  settings["num_experts"] = 8;
  return settings;
}

layout::Configuration With(layout::Configuration settings, const layout::Configuration& more) {
  for (const auto& [name, value] : more) settings[name] = value;
  return settings;
}

Result<TrainConfig> Parse(const layout::Configuration& given, int ranks) {
  SettingsReader settings(given);
  return ParseTrainConfig(settings, ranks);
}

std::string Problems(const layout::Configuration& given, int ranks) {
  const auto config = Parse(given, ranks);
  return config.ok() ? "" : config.status().ToString();
}

TEST(ParseTrainConfigTest, DefaultsAreFullShardingInFloat32) {
  const auto config = Parse(Small(), 4);
  ASSERT_THAT(config, IsOk());
  EXPECT_EQ(config->mesh.world_size, 4);
  EXPECT_EQ(config->mesh.sharding, Sharding::kOptimGradsParams);
  EXPECT_EQ(config->precision.compute, DType::kFloat32);
  EXPECT_EQ(config->precision.grad_comm, DType::kFloat32);
  EXPECT_EQ(config->global_batch_size, 4);  // one micro-batch a rank
  EXPECT_EQ(config->num_micro_batches(), 1);
}

TEST(ParseTrainConfigTest, EverySettingReachesItsField) {
  const auto config =
      Parse(With(SmallMoe(), {{"micro_batch_size", 2},
                              {"global_batch_size", 32},
                              {"data_parallel_sharding_strategy", "optim_grads_params"},
                              {"outer_dp_sharding_strategy", "optim"},
                              {"num_distributed_optimizer_instances", 2},
                              {"expert_model_parallel_size", 2},
                              {"moe_token_dispatcher_type", "allgather"},
                              {"moe_expert_rank_capacity_factor", 1.5},
                              {"params_dtype", "bfloat16"},
                              {"main_params_dtype", "fp32"},
                              {"main_grads_dtype", "float32"},
                              {"grad_comm_dtype", "bf16"},
                              {"recompute_granularity", "full"},
                              {"loss_chunk_tokens", 64},
                              {"deterministic_mode", true},
                              {"calculate_per_token_loss", true},
                              {"optimizer", "sgd"},
                              {"sgd_momentum", 0.8},
                              {"weight_decay", 0.1},
                              {"decay_all", true},
                              {"lr", 3e-4},
                              {"min_lr", 3e-5},
                              {"lr_decay_style", "WSD"},
                              {"lr_warmup_iters", 10},
                              {"lr_decay_iters", 100},
                              {"lr_wsd_decay_style", "minus_sqrt"},
                              {"lr_wsd_decay_iters", 20},
                              {"clip_grad", 0.5},
                              {"seed", 7},
                              {"frozen", layout::Value::List{"*.router.*", "embedding.*"}},
                              {"overlap_grad_reduce", true},
                              {"overlap_param_gather", true},
                              {"gpu_collectives", "nccl"},
                              {"weight_slots", 3},
                              {"gradient_slots", 1},
                              {"prefetch_depth", 2},
                              {"max_unsharded_bytes", "64MiB"}}),
            8);
  ASSERT_THAT(config, IsOk());
  EXPECT_EQ(config->micro_batch_size, 2);
  EXPECT_EQ(config->global_batch_size, 32);
  EXPECT_EQ(config->seq_length, 8);
  EXPECT_EQ(config->mesh.outer, OuterSharding::kOptim);
  EXPECT_EQ(config->mesh.num_instances, 2);
  EXPECT_EQ(config->mesh.expert_parallel, 2);
  EXPECT_EQ(config->dispatcher, Dispatcher::kAllGather);
  EXPECT_EQ(config->rank_capacity_factor, 1.5);
  EXPECT_EQ(config->precision.compute, DType::kBfloat16);
  EXPECT_EQ(config->precision.main_params, DType::kFloat32);
  EXPECT_EQ(config->precision.main_grads, DType::kFloat32);
  EXPECT_EQ(config->precision.grad_comm, DType::kBfloat16);
  EXPECT_EQ(config->recompute, Recompute::kLayers);
  EXPECT_EQ(config->loss_chunk_tokens, 64);
  EXPECT_TRUE(config->deterministic);
  EXPECT_TRUE(config->per_token_loss);
  EXPECT_EQ(config->optimizer.kind, OptimizerKind::kSgd);
  EXPECT_EQ(config->optimizer.sgd_momentum, 0.8);
  EXPECT_EQ(config->optimizer.weight_decay, 0.1);
  EXPECT_TRUE(config->optimizer.decay_all);
  EXPECT_EQ(config->schedule.max_lr, 3e-4);
  EXPECT_EQ(config->schedule.min_lr, 3e-5);
  EXPECT_EQ(config->schedule.style, DecayStyle::kWsd);
  EXPECT_EQ(config->schedule.warmup_steps, 10);
  EXPECT_EQ(config->schedule.decay_steps, 100);
  EXPECT_EQ(config->schedule.wsd_style, WsdDecayStyle::kMinusSqrt);
  EXPECT_EQ(config->schedule.wsd_decay_steps, 20);
  EXPECT_EQ(config->clip_grad, 0.5);
  EXPECT_EQ(config->seed, 7U);
  EXPECT_EQ(config->frozen, (std::vector<std::string>{"*.router.*", "embedding.*"}));
  EXPECT_EQ(config->overlap_grad_reduce, true);
  EXPECT_EQ(config->overlap_param_gather, true);
  EXPECT_EQ(config->gpu_collectives, GpuCollectives::kNccl);
  EXPECT_EQ(config->slots.weight_slots, 3);
  EXPECT_EQ(config->slots.gradient_slots, 1);
  EXPECT_EQ(config->slots.prefetch_depth, 2);
  EXPECT_EQ(config->max_unsharded_bytes, std::uint64_t{64} << 20);
  EXPECT_EQ(config->model.moe->num_experts, 8);
}

TEST(ParseTrainConfigTest, ACurveIsAsLongAsTheRunUnlessSaidOtherwise) {
  const layout::Configuration cosine =
      With(Small(), {{"lr_decay_style", "cosine"}, {"train_iters", 50}});
  SettingsReader settings(cosine);
  const auto config = ParseTrainConfig(settings, 1);
  ASSERT_THAT(config, IsOk());
  EXPECT_EQ(config->schedule.decay_steps, 50);
  EXPECT_EQ(settings.effective().at("lr_decay_iters"), layout::Value(50))
      << "a run that goes on for longer keeps its curve";
  EXPECT_EQ(Parse(With(cosine, {{"lr_decay_iters", 30}}), 1)->schedule.decay_steps, 30);
  EXPECT_EQ(Parse(With(Small(), {{"train_iters", 50}}), 1)->schedule.decay_steps, 0);
}

TEST(ParseTrainConfigTest, OnePatternOfFrozenParametersNeedsNoList) {
  const auto config = Parse(With(Small(), {{"frozen", "embedding.*"}}), 1);
  ASSERT_THAT(config, IsOk());
  EXPECT_EQ(config->frozen, std::vector<std::string>{"embedding.*"});
  EXPECT_THAT(Problems(With(Small(), {{"frozen", layout::Value::List{1}}}), 1),
              HasSubstr("setting frozen is not a valid list"));
}

TEST(ParseTrainConfigTest, CanonicalSumsAreFixedPoint) {
  const auto config = Parse(With(Small(), {{"reduction", "canonical"}}), 2);
  ASSERT_THAT(config, IsOk());
  EXPECT_EQ(config->precision.main_grads, DType::kInt64);
  EXPECT_EQ(config->precision.grad_comm, DType::kInt64);
  EXPECT_THAT(
      Problems(With(Small(), {{"reduction", "canonical"}, {"main_grads_dtype", "fp32"}}), 2),
      HasSubstr("main_grads_dtype has no effect under reduction=canonical"));
}

TEST(ParseTrainConfigTest, ReportsWhatIsWrongWithModelRunAndMeshAtOnce) {
  const std::string problems = Problems(With(Small(), {{"hidden_size", "wide"},
                                                       {"lr_decai_style", "cosine"},
                                                       {"optimizer", "lion"},
                                                       {"micro_batch_size", 0},
                                                       {"expert_model_parallel_size", 2},
                                                       {"max_unsharded_bytes", "many"},
                                                       {"overlap_param_gather", true}}),
                                        4);
  for (const char* want :
       {"hidden_size is not a valid number", "no setting lr_decai_style",
        "did you mean lr_decay_style", "optimizer has an unknown value: expected adam, sgd",
        "micro_batch_size is not a valid number",
        "expert_model_parallel_size is set, but the model has no experts",
        "max_unsharded_bytes is not a size", "overlap_param_gather needs overlap_grad_reduce"}) {
    EXPECT_THAT(problems, HasSubstr(want));
  }
}

TEST(ParseTrainConfigTest, SaysOnceWhatIsWrongWithTheRouter) {
  const std::string problems = Problems(With(SmallMoe(), {{"moe_router_num_groups", 3}}), 1);
  EXPECT_THAT(problems, HasSubstr("moe_router_num_groups"));
  EXPECT_EQ(problems.find("moe_router_num_groups"), problems.rfind("moe_router_num_groups"));
}

TEST(ParseTrainConfigTest, RefusesContradictions) {
  EXPECT_THAT(Problems(With(Small(), {{"bf16", true}, {"params_dtype", "fp32"}}), 1),
              HasSubstr("params_dtype contradicts bf16"));
  EXPECT_EQ(Problems(With(Small(), {{"bf16", true}, {"params_dtype", "bf16"}}), 1), "");
  EXPECT_THAT(Problems(With(Small(), {{"global_batch_size", 3}}), 2),
              HasSubstr("global_batch_size must be a multiple"));
}

TEST(ParseTrainConfigTest, RefusesNumbersPastAnyMachine) {
  constexpr std::int64_t kHuge = std::int64_t{1} << 62;
  EXPECT_THAT(Problems(With(Small(), {{"num_distributed_optimizer_instances", kHuge}}), 2),
              HasSubstr("num_distributed_optimizer_instances is not a valid number"));
  EXPECT_THAT(Problems(With(Small(), {{"micro_batch_size", kHuge}}), 4),
              HasSubstr("micro_batch_size is too large"));
}

TEST(ParseTrainConfigTest, WhatWasReadMakesTheSameRun) {
  const layout::Configuration given =
      With(SmallMoe(), {{"expert_model_parallel_size", 2}, {"lr", 1}});
  SettingsReader first(given);
  ASSERT_THAT(ParseTrainConfig(first, 4), IsOk());
  EXPECT_EQ(first.effective().at("clip_grad"), layout::Value(1.0));  // a default
  EXPECT_EQ(first.effective().at("data_parallel_sharding_strategy"),
            layout::Value("optim_grads_params"));

  SettingsReader second(first.effective());
  ASSERT_THAT(ParseTrainConfig(second, 4), IsOk());
  EXPECT_EQ(second.effective(), first.effective());
}

TEST(ParseTrainConfigTest, RefusesSettingsThatDoNothing) {
  const auto says = [](const char* name, const layout::Value& value, layout::Configuration beside,
                       const std::string& why) {
    EXPECT_EQ(Problems(With(Small(), beside), 1), "") << why;
    beside[name] = value;
    EXPECT_THAT(Problems(With(Small(), beside), 1),
                HasSubstr("setting " + std::string(name) + " does nothing " + why));
  };
  says("outer_dp_sharding_strategy", "optim", {}, "without num_distributed_optimizer_instances");
  EXPECT_THAT(Problems(With(Small(), {{"outer_dp_sharding_strategy", "optim"}}), 1),
              Not(HasSubstr("\n")))
      << "one error";
  says("moe_token_dispatcher_type", "allgather", {}, "without num_experts");
  says("moe_expert_rank_capacity_factor", 2, {}, "without num_experts");
  EXPECT_THAT(Problems(With(SmallMoe(), {{"moe_expert_rank_capacity_factor", 2}}), 2),
              HasSubstr("does nothing without expert_model_parallel_size"));
  says("adam_beta2", 0.95, {{"optimizer", "sgd"}}, "with optimizer=sgd");
  says("sgd_momentum", 0.5, {}, "with optimizer=adam");
  says("decoupled_weight_decay", false, {{"weight_decay", 0}}, "without weight_decay");
  says("decay_all", true, {{"weight_decay", 0}}, "without weight_decay");
  says("min_lr", 1e-5, {}, "with lr_decay_style=constant");
  says("lr_decay_iters", 100, {}, "with lr_decay_style=constant");
  says("lr_warmup_init", 1e-5, {}, "without lr_warmup_iters");
  says("lr_wsd_decay_iters", 5, {{"lr_decay_style", "linear"}, {"lr_decay_iters", 9}},
       "without lr_decay_style=WSD");
  EXPECT_THAT(Problems(With(Small(), {{"max_position_embeddings", 7}}), 1),
              HasSubstr("max_position_embeddings is below seq_length: expected at least 8"));
}

TEST(ParseTrainConfigTest, AutoDividesExpertsWhereTokensAreCheaperToSendThanWeights) {
  // m1 of the benchmark: 64 experts of 640, of which a token meets 8.
  const auto chosen = [](std::int64_t tokens, int ranks, int instances,
                         const char* dispatcher = "alltoall") {
    auto config = Parse(With(SmallMoe(), {{"num_experts", 64},
                                          {"moe_ffn_hidden_size", 640},
                                          {"moe_router_topk", 8},
                                          {"seq_length", tokens},
                                          {"num_distributed_optimizer_instances", instances},
                                          {"moe_token_dispatcher_type", dispatcher},
                                          {"expert_model_parallel_size", "auto"}}),
                        ranks);
    EXPECT_THAT(config, IsOk());
    EXPECT_EQ(config->mesh.expert_parallel, config->expert_choice->expert_parallel);
    return *config->expert_choice;
  };
  const ExpertChoice many = chosen(16384, 8, 1);
  EXPECT_EQ(many.expert_parallel, 1);
  EXPECT_EQ(many.candidate, 8);
  EXPECT_EQ(many.hidden_tokens, 8000);
  EXPECT_NEAR(many.exchange_time, 700.0 / 640, 1e-9);
  EXPECT_NEAR(chosen(16384, 8, 1, "flex").exchange_time, 700.0 / 640 * 5.43 / 8, 5e-3)
      << "a token is on 5.4 of 8 ranks";
  EXPECT_NEAR(many.gather_time, 1500 * 8.0 / 16384, 1e-9);
  EXPECT_THAT(many.Reason(), HasSubstr("experts are not divided"));
  const ExpertChoice few = chosen(2048, 16, 1);
  EXPECT_EQ(few.expert_parallel, 8) << "and not 16: a host has eight";
  EXPECT_THAT(few.Reason(), HasSubstr("8 ranks divide the experts"));
  EXPECT_EQ(chosen(2048, 8, 4).expert_parallel, 2) << "the ranks of an instance";
  EXPECT_EQ(chosen(2048, 1, 1).candidate, 1);
  EXPECT_THAT(Problems(With(Small(), {{"expert_model_parallel_size", "auto"}}), 2),
              HasSubstr("is auto, but the model has no experts"));
  EXPECT_THAT(Problems(With(SmallMoe(), {{"expert_model_parallel_size", "many"}}), 2),
              HasSubstr("expert_model_parallel_size is not a valid number"));
}

TEST(ParseTrainConfigTest, RefusesAPatternOfFrozenParametersThatMatchesNothing) {
  const std::string problems =
      Problems(With(Small(), {{"frozen", layout::Value::List{"embedding.*", "embeddings.*"}}}), 1);
  EXPECT_THAT(problems, HasSubstr("a pattern that no parameter matches"));
  EXPECT_THAT(problems, HasSubstr("found embeddings.*"));
  // On whichever rank an expert lies.
  EXPECT_EQ(Problems(With(SmallMoe(), {{"frozen", "*.experts.linear_fc1.weight7"},
                                       {"expert_model_parallel_size", 4}}),
                     4),
            "");
}

TEST(ParseTrainConfigTest, KnowsTheWordsOfOtherPrograms) {
  const std::string problems = Problems(
      With(Small(), {{"seq_len", 4}, {"learning_rate", 1}, {"fp16", true}, {"lr_", 1}}), 1);
  for (const char* want : {"there is no setting seq_len\nhint: did you mean seq_length?",
                           "there is no setting learning_rate\nhint: did you mean lr?",
                           "there is no setting fp16\nhint: did you mean bf16?",
                           "there is no setting lr_\nhint: did you mean lr?"}) {
    EXPECT_THAT(problems, HasSubstr(want));
  }
}

}  // namespace
}  // namespace ckpt::trainer
