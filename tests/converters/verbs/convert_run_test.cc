// Whole training runs as torch_dist and fsdp_dtensor.
#include <algorithm>
#include <fstream>
#include <string>
#include <vector>

#include <boost/filesystem/operations.hpp>
#include <gmock/gmock.h>

#include "tests/converters/verbs/convert_run_fixture.h"

namespace ckpt {
namespace {

using testing::Content;
using testing::ConvertRunTest;
using testing::FailsWith;
using ::testing::HasSubstr;
using testing::IsOk;

// Megatron-FSDP's runs, dense and with experts, of several meshes.
TEST_F(ConvertRunTest, GoesToMegatronCoreAndBackUnchanged) {
  const std::vector<std::string> all = {"model.module.", "optimizer.state."};
  for (const std::string& name : testing::GoldenCases(
           "fsdp_dtensor",
           {"dense_fsdp2", "dense_tied_fsdp4", "moe_ep2_fsdp4", "dense_tp2_fsdp2"})) {
    SCOPED_TRACE(name);
    const Path source = RunOf("fsdp_dtensor", name);
    const ConvertOptions there = ToTorchDist(source);
    const auto report = Convert(there);
    ASSERT_THAT(report, IsOk());
    EXPECT_EQ(report->target_digest, report->source_digest);
    ExpectNoPartOfTheStateDropped(*report);
    const ConvertOptions back = ToFsdpRun(there.target);
    ASSERT_THAT(Convert(back), IsOk());
    EXPECT_EQ(Tensors(back.target, all), Tensors(source, all));
    const TrainingState first = WholeState(source);
    ExpectSameRun(first.run, WholeState(there.target).run);
    const TrainingState last = WholeState(back.target);
    ExpectSameRun(first.run, last.run);
    // Which parameters decay is stored by Megatron-FSDP alone, and follows from their shapes.
    ExpectSameDecay(first.run, last.run);
  }
}

// What Megatron-Core wrote: the exact weights become the weights.
TEST_F(ConvertRunTest, GoesToMegatronFsdpAndBack) {
  for (const std::string& name :
       testing::GoldenCases("torch_dist", {"opt_fully_reshardable_dp1_core016",
                                           "opt_fully_reshardable_tp2dp2_core016",
                                           "opt_fully_reshardable_pp2dp2_core019"})) {
    SCOPED_TRACE(name);
    const Path source = RunOf("torch_dist", name);
    ConvertOptions there = ToFsdpRun(source);
    there.to.choices["transformer_impl"] = "local";
    ASSERT_THAT(Convert(there), IsOk());
    ConvertOptions back = ToTorchDist(there.target);
    back.dtype = DType::kBfloat16;  // of the model's weights, as they were
    ASSERT_THAT(Convert(back), IsOk());
    const std::vector<std::string> all = {"decoder.", "embedding.", "output_layer.", "optimizer."};
    auto expected = Tensors(source, all);
    auto actual = Tensors(back.target, all);
    EXPECT_EQ(actual, expected);
    EXPECT_EQ(WholeState(back.target).run.iteration, WholeState(source).run.iteration);
  }
}

// The golden's arguments lack the size of experts and their routing: no single setting is wrong.
TEST_F(ConvertRunTest, AConfigurationStandsInForArgumentsThatAreAbsent) {
  for (const char* const name :
       {"opt_moe_fully_reshardable_ep2_core016", "opt_moe_dp_reshardable_ep2dp4_core019"}) {
    if (!testing::HasGolden("torch_dist", name)) GTEST_SKIP();
    SCOPED_TRACE(name);
    ConvertOptions options = Between("torch_dist", "fsdp_dtensor", RunOf("torch_dist", name),
                                     std::string("out_") + name);
    const auto refused = PrepareConversion(PosixStorage(), options);
    ASSERT_FALSE(refused.ok());
    EXPECT_THAT(refused.status().ToString(), HasSubstr("--hf-assets DIR"));
    options.model.assets = dir_.path() / "assets";
    boost::filesystem::create_directories(options.model.assets);
    std::ofstream((options.model.assets / "config.json").string())
        << R"({"model_type": "megatron", "num_hidden_layers": 2, "hidden_size": 32,
               "intermediate_size": 48, "num_attention_heads": 4, "num_key_value_heads": 2,
               "head_dim": 8, "vocab_size": 64, "max_position_embeddings": 32,
               "hidden_act": "silu", "rms_norm_eps": 1e-5, "rope_theta": 10000,
               "tie_word_embeddings": false, "attention_bias": false, "mlp_bias": false,
               "attention_output_bias": false, "num_experts": 4, "num_experts_per_tok": 2,
               "moe_intermediate_size": 24, "norm_topk_prob": true, "mlp_only_layers": [],
               "router_expert_bias": true, "scoring_func": "sigmoid"})";
    const auto report = Convert(options);
    ASSERT_THAT(report, IsOk());
    EXPECT_EQ(report->target_digest, report->source_digest);
  }
}

TEST_F(ConvertRunTest, TakesTheWeightsAloneOnRequest) {
  ConvertOptions options = ToTorchDist(RunOf("fsdp_dtensor", "dense_fsdp2"));
  options.weights_only = true;
  const auto prepared = PrepareConversion(PosixStorage(), options);
  ASSERT_THAT(prepared, IsOk());
  EXPECT_EQ(prepared->checkpoint_directory, "release");
  EXPECT_FALSE(prepared->is_run);
  const bool lists_moments =
      std::ranges::any_of(prepared->model.left_out, [](const LeftOutEntry& entry) {
        return entry.key.starts_with("optimizer.state.") && entry.bytes > 0;
      });
  EXPECT_TRUE(lists_moments);
}

TEST_F(ConvertRunTest, RefusesPartsOfARun) {
  ConvertOptions options = ToTorchDist(RunOf("fsdp_dtensor", "dense_fsdp2"));
  options.model.drop = {"*final_layernorm*"};
  EXPECT_THAT(PrepareConversion(PosixStorage(), options), FailsWith(ErrorKind::kUsage));
  ConvertOptions rounded = ToFsdpRun(RunOf("torch_dist", "opt_fully_reshardable_dp1_core016"));
  rounded.dtype = DType::kBfloat16;
  EXPECT_THAT(PrepareConversion(PosixStorage(), rounded), FailsWith(ErrorKind::kUsage));
}

// Moments, counters and exact weights are of use with all their digits only, also where nothing
// says which tensors these are but their keys.
TEST_F(ConvertRunTest, CastsNoOptimizerUnderItsOwnKeys) {
  const std::vector<Path> sources = {
      RunOf("fsdp_dtensor", "dense_fsdp2"), RunOf("fsdp_dtensor", "fully_shard2"),
      RunOf("torch_dist", "opt_fully_reshardable_dp1_core016"),
      RunOf("torch_dist", "opt_dp_reshardable_tp2dp2_core016"), RunOf("dcp", "pt_training")};
  for (const Path& source : sources) {
    for (const char* to : {"hdf5", "torch_save", "dcp", "safetensors"}) {
      SCOPED_TRACE(source.string() + " to " + to);
      ConvertOptions options = Between("", to, source, "cast");
      options.dtype = DType::kBfloat16;
      const auto refused = PrepareConversion(PosixStorage(), options);
      ASSERT_THAT(refused, FailsWith(ErrorKind::kUsage));
      EXPECT_THAT(refused.status().first().message, HasSubstr("--dtype is for weights"));
      options.model.drop = {"*optim*"};
      EXPECT_THAT(PrepareConversion(PosixStorage(), options), IsOk());
    }
  }
}

TEST_F(ConvertRunTest, DependsOnNeitherThreadsNorBudget) {
  ConvertOptions options = ToTorchDist(RunOf("fsdp_dtensor", "moe_ep2_fsdp4"));
  options.files = 2;
  ASSERT_THAT(Convert(options), IsOk());
  EXPECT_EQ(Content(options.target / "latest_checkpointed_iteration.txt"), "3");
  ExpectSameForAnyThreadsAndBudget(options.target, options);
}

}  // namespace
}  // namespace ckpt
