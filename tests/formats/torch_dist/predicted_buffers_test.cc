// The buffers that follow from a run's arguments.
#include "formats/torch_dist/internal/predicted_buffers.h"

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "core/io/posix_storage.h"
#include "formats/torch_dist/internal/read_args.h"
#include "formats/torch_dist/internal/run_arguments.h"
#include "formats/torch_dist/internal/source.h"
#include "formats/torch_dist/internal/unpacked_buffers.h"
#include "tests/formats/torch_dist/iteration_of.h"
#include "tests/testing/golden.h"
#include "tests/testing/matchers.h"

namespace ckpt::torch_dist {
namespace {

using ::testing::ElementsAre;
using testing::FailsWith;
using ::testing::HasSubstr;
using testing::IsOk;

class PredictedGoldenTest : public ::testing::TestWithParam<std::string> {};
INSTANTIATE_TEST_SUITE_P(Cases, PredictedGoldenTest,
                         ::testing::ValuesIn(testing::GoldenCases(
                             "torch_dist",
                             {"opt_dp_reshardable_dp1_core016", "opt_dp_reshardable_dp2_core019",
                              "opt_dp_reshardable_tp2dp2_core016",
                              "opt_moe_dp_reshardable_ep2dp4_core019"})),
                         [](const auto& golden) { return golden.param; });
GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(PredictedGoldenTest);

TEST_P(PredictedGoldenTest, AreThoseThatMegatronMade) {
  const testing::GoldenCase golden = testing::LoadGolden("torch_dist", GetParam());
  auto source = Source::Open(PosixStorage(), testing::IterationOf(golden));
  ASSERT_THAT(source, IsOk());
  const auto view = UnpackBuffers(std::shared_ptr<const CheckpointSource>(std::move(*source)));
  ASSERT_THAT(view, IsOk());
  std::vector<TargetTensor> tensors;
  for (const GlobalTensor& tensor : (*view)->index().tensors()) {
    tensors.push_back({.key = tensor.key, .dtype = tensor.dtype, .shape = tensor.shape});
  }
  auto args = ReadArgs(**view);
  ASSERT_THAT(args, IsOk());
  // Those of the goldens are not all that Megatron has.
  (*args)["transformer_impl"] = "local";
  (*args)["moe_grouped_gemm"] = false;
  const auto predicted = PredictBuffers(tensors, *args);
  ASSERT_THAT(predicted, IsOk());
  EXPECT_EQ(*predicted, BuffersOf(**view));
  EXPECT_THAT(CheckOrder(*predicted, *args), IsOk());
  // With Transformer Engine the norm before the attention is a part of the projection behind it.
  (*args)["transformer_impl"] = "transformer_engine";
  EXPECT_THAT(CheckOrder(*predicted, *args), FailsWith(ErrorKind::kUnsupported));
}

// A model of two layers and few weights.
class PredictedBuffersTest : public ::testing::Test {
 protected:
  PredictedBuffersTest() {
    Add("embedding.word_embeddings.weight", {20, 8});
    Add("decoder.layers.self_attention.linear_proj.weight", {2, 8, 8});
    Add("decoder.layers.mlp.linear_fc1.layer_norm_weight", {2, 8});
    Add("decoder.layers.mlp.linear_fc1.weight", {2, 24, 8});
    Add("output_layer.weight", {20, 8});
    args_ = {{"num_layers", 2}, {"transformer_impl", "local"}};
  }

  void Add(const std::string& key, const Dims& shape, DType dtype = DType::kBfloat16) {
    tensors_.push_back({.key = key, .dtype = dtype, .shape = shape});
    for (const char* field : {"param", "exp_avg"}) {
      tensors_.push_back({.key = fmt::format("optimizer.state.{}.{}", field, key),
                          .dtype = DType::kFloat32,
                          .shape = shape});
    }
  }
  [[nodiscard]] Result<RankBuffers> Predict() const { return PredictBuffers(tensors_, args_); }
  // "output_layer.weight 0", with the layer, of every part, in order.
  static std::vector<std::string> Parts(const BufferBucket& bucket) {
    std::vector<std::string> parts;
    for (const BufferPart& part : bucket.parts) {
      const std::size_t leaf = part.name.rfind('.', part.name.rfind('.') - 1);
      parts.push_back(
          fmt::format("{} {} at {}", part.name.substr(leaf + 1), part.layer, part.begin));
    }
    return parts;
  }
  // Why it is refused.
  void ExpectRefused(ErrorKind kind, const std::string& what,
                     const std::string& hint = "fully_reshardable") const {
    const auto predicted = Predict();
    ASSERT_THAT(predicted, FailsWith(kind)) << what;
    EXPECT_THAT(predicted.status().first().tensor, HasSubstr(what));
    EXPECT_THAT(predicted.status().first().hint, HasSubstr(hint));
  }

  std::vector<TargetTensor> tensors_;
  layout::Configuration args_;
};

TEST_F(PredictedBuffersTest, AreNotOfMoreLayersThanAnyModelHas) {
  Add("decoder.layers.self_attention.linear_qkv.weight", {std::int64_t{1} << 40, 0, 8});
  ExpectRefused(ErrorKind::kResource, "linear_qkv");
}

TEST_F(PredictedBuffersTest, HaveTheLastParameterFirst) {
  const auto buffers = Predict();
  ASSERT_THAT(buffers, IsOk());
  ASSERT_EQ(buffers->size(), 1U);
  EXPECT_EQ(
      buffers->at(0).id,
      (BufferId{
          .optimizer = "", .group = 0, .buffer = 0, .dtypes = "torch.bfloat16, torch.float32"}));
  ASSERT_EQ(buffers->at(0).buckets.size(), 1U);
  const BufferBucket& bucket = buffers->at(0).buckets[0];
  EXPECT_EQ(bucket.elems, 992);
  EXPECT_THAT(Parts(bucket),
              ElementsAre("output_layer.weight 0 at 0", "linear_fc1.weight 1 at 192",
                          "linear_fc1.layer_norm_weight 1 at 384", "linear_proj.weight 1 at 448",
                          "linear_fc1.weight 0 at 512", "linear_fc1.layer_norm_weight 0 at 704",
                          "linear_proj.weight 0 at 768", "word_embeddings.weight 0 at 832"));
}

TEST_F(PredictedBuffersTest, LeaveOutWhatIsNotTrained) {
  std::erase_if(tensors_, [](const TargetTensor& tensor) {
    return tensor.key.starts_with("optimizer.") && tensor.key.ends_with("output_layer.weight");
  });
  const auto buffers = Predict();
  ASSERT_THAT(buffers, IsOk());
  EXPECT_EQ(Parts(buffers->at(0).buckets.at(0)).front(), "linear_fc1.weight 1 at 0");
}

TEST_F(PredictedBuffersTest, HaveABufferForEachDtype) {
  Add("decoder.final_layernorm.weight", {8}, DType::kFloat32);
  args_["grad_reduce_in_bf16"] = true;
  const auto buffers = Predict();
  ASSERT_THAT(buffers, IsOk());
  ASSERT_EQ(buffers->size(), 2U);
  EXPECT_EQ(buffers->at(0).id.dtypes, "torch.bfloat16, torch.bfloat16");
  EXPECT_EQ(buffers->at(1).id.dtypes, "torch.float32, torch.float32");
  EXPECT_THAT(Parts(buffers->at(1).buckets.at(0)), ElementsAre("final_layernorm.weight 0 at 0"));
}

TEST_F(PredictedBuffersTest, AreCutInBucketsIfGradientsAreReducedMeanwhile) {
  args_["ddp_bucket_size"] = 300;
  EXPECT_EQ(Predict()->at(0).buckets.size(), 1U);
  args_["overlap_grad_reduce"] = true;
  const auto buffers = Predict();
  ASSERT_THAT(buffers, IsOk());
  std::vector<std::int64_t> elems;
  for (const BufferBucket& bucket : buffers->at(0).buckets) elems.push_back(bucket.elems);
  EXPECT_THAT(elems, ElementsAre(384, 320, 288));
  EXPECT_EQ(Parts(buffers->at(0).buckets[1]).front(), "linear_fc1.layer_norm_weight 1 at 0");
}

TEST_F(PredictedBuffersTest, AreThoseOfEveryTensorRankAndStage) {
  args_["tensor_model_parallel_size"] = 2;
  args_["pipeline_model_parallel_size"] = 2;
  args_["swiglu"] = true;
  const auto buffers = Predict();
  ASSERT_THAT(buffers, IsOk());
  ASSERT_EQ(buffers->size(), 4U);
  // Stage 1, tensor rank 1.
  EXPECT_EQ(buffers->at(3).id.group, 3);
  const BufferBucket& bucket = buffers->at(3).buckets.at(0);
  EXPECT_THAT(Parts(bucket),
              ElementsAre("output_layer.weight 0 at 0", "linear_fc1.weight 1 at 128",
                          "linear_fc1.layer_norm_weight 1 at 256", "linear_proj.weight 1 at 320"));
  EXPECT_THAT(bucket.parts[1].boxes, ElementsAre(Box{{6, 0}, {6, 8}}, Box{{18, 0}, {6, 8}}));
  EXPECT_THAT(bucket.parts[3].boxes, ElementsAre(Box{{0, 4}, {8, 4}}));
}

TEST_F(PredictedBuffersTest, HaveATiedEmbeddingInTheLastStageOnceMore) {
  std::erase_if(tensors_, [](const TargetTensor& tensor) {
    return tensor.key.ends_with("output_layer.weight");
  });
  args_["pipeline_model_parallel_size"] = 2;
  const auto buffers = Predict();
  ASSERT_THAT(buffers, IsOk());
  // In a bucket of its own, before which the other one ends at a multiple.
  EXPECT_THAT(Parts(buffers->at(0).buckets.at(1)), ElementsAre("word_embeddings.weight 0 at 0"));
  EXPECT_EQ(buffers->at(0).buckets[0].elems, 320);
  EXPECT_THAT(Parts(buffers->at(1).buckets.at(0)), ElementsAre("word_embeddings.weight 0 at 0"));
}

TEST_F(PredictedBuffersTest, PutExpertsApartIfRanksShareThem) {
  Add("decoder.layers.mlp.experts.experts.linear_fc1.weight", {2, 4, 8, 8});
  ExpectRefused(ErrorKind::kMissing, "args.moe_grouped_gemm");
  args_["moe_grouped_gemm"] = true;
  ExpectRefused(ErrorKind::kUnsupported, "args.moe_grouped_gemm");
  args_["transformer_impl"] = "transformer_engine";
  EXPECT_THAT(Predict(), IsOk());
  args_["moe_use_legacy_grouped_gemm"] = true;
  ExpectRefused(ErrorKind::kUnsupported, "args.moe_use_legacy_grouped_gemm");
  args_["transformer_impl"] = "local";
  args_["moe_grouped_gemm"] = false;
  args_["expert_tensor_parallel_size"] = 2;
  ExpectRefused(ErrorKind::kUnsupported, "args.expert_tensor_parallel_size");
  args_.erase("expert_tensor_parallel_size");
  EXPECT_EQ(Predict()->size(), 1U);
  args_["expert_model_parallel_size"] = 2;
  const auto buffers = Predict();
  ASSERT_THAT(buffers, IsOk());
  ASSERT_EQ(buffers->size(), 3U);
  EXPECT_EQ(buffers->at(0).id.optimizer, "chained_0.");
  EXPECT_EQ(buffers->at(2).id.optimizer, "chained_1.");
  const std::vector<BufferPart>& parts = buffers->at(2).buckets.at(0).parts;
  ASSERT_EQ(parts.size(), 4U);
  EXPECT_EQ(parts[0].layer, 1);
  EXPECT_EQ(parts[0].expert, 3);
  EXPECT_EQ(parts[3].expert, 2);
}

TEST_F(PredictedBuffersTest, NameWhatIsMissing) {
  args_.erase("transformer_impl");
  ExpectRefused(ErrorKind::kMissing, "args.transformer_impl");
  args_["transformer_impl"] = "transformer_engine";
  args_["overlap_grad_reduce"] = true;
  ExpectRefused(ErrorKind::kMissing, "args.data_parallel_size");
  args_["world_size"] = 2;
  EXPECT_THAT(Predict(), IsOk());
  args_["ddp_num_buckets"] = 3;
  ExpectRefused(ErrorKind::kUnsupported, "args.ddp_num_buckets");
}

TEST_F(PredictedBuffersTest, RefuseStagesThatAreNotEqual) {
  args_["pipeline_model_parallel_size"] = 2;
  args_["num_layers"] = 3;
  ExpectRefused(ErrorKind::kUnsupported, "args.num_layers");
  args_["num_layers"] = 2;
  args_["virtual_pipeline_model_parallel_size"] = std::int64_t{1} << 62;
  ExpectRefused(ErrorKind::kUnsupported, "args.num_layers");
  args_.erase("virtual_pipeline_model_parallel_size");
  args_["account_for_loss_in_pipeline_split"] = false;
  args_["mtp_num_layers"] = layout::Value();
  EXPECT_THAT(Predict(), IsOk());
  args_["mtp_num_layers"] = 1;
  ExpectRefused(ErrorKind::kUnsupported, "args.mtp_num_layers");
}

TEST_F(PredictedBuffersTest, RefuseWeightsOfUnknownPlaceOrDivision) {
  Add("decoder.layers.mixer.in_proj.weight", {2, 8, 8});
  ExpectRefused(ErrorKind::kUnsupported, "mixer.in_proj.weight");
  tensors_.resize(tensors_.size() - 3);
  Add("decoder.layers.mlp.shared_experts.gate_bias", {2, 8});
  EXPECT_THAT(Predict(), IsOk());
  args_["tensor_model_parallel_size"] = 2;
  ExpectRefused(ErrorKind::kUnsupported, "shared_experts.gate_bias");
}

// Local layers divide them as any other projection; Transformer Engine's do not.
TEST_F(PredictedBuffersTest, HaveProjectionsToLatentsWholeOrByRows) {
  const std::string queries = "decoder.layers.self_attention.linear_q_down_proj.weight";
  const std::string keys = "decoder.layers.self_attention.linear_kv_down_proj.weight";
  Add(queries, {2, 12, 8});
  Add(keys, {2, 10, 8});
  args_["tensor_model_parallel_size"] = 2;
  for (const bool is_local : {true, false}) {
    SCOPED_TRACE(is_local);
    args_["transformer_impl"] = is_local ? "local" : "transformer_engine";
    const auto buffers = Predict();
    ASSERT_THAT(buffers, IsOk());
    ASSERT_EQ(buffers->size(), 2U);
    for (const BufferPart& part : buffers->at(1).buckets.at(0).parts) {
      const std::int64_t first_row = is_local ? 1 : 0;  // in halves
      const std::int64_t halves = is_local ? 1 : 2;
      if (part.name == queries) {
        EXPECT_THAT(part.boxes, ElementsAre(Box{{6 * first_row, 0}, {6 * halves, 8}}));
      }
      if (part.name == keys) {
        EXPECT_THAT(part.boxes, ElementsAre(Box{{5 * first_row, 0}, {5 * halves, 8}}));
      }
    }
    EXPECT_THAT(Parts(buffers->at(1).buckets.at(0)),
                ::testing::Contains(HasSubstr("linear_kv_down_proj.weight 1 at ")));
  }
}

TEST_F(PredictedBuffersTest, RefuseLatentsOfWhichRanksHaveUnequalRows) {
  Add("decoder.layers.self_attention.linear_kv_down_proj.weight", {2, 9, 8});
  args_["tensor_model_parallel_size"] = 2;
  ExpectRefused(ErrorKind::kUnsupported, "linear_kv_down_proj.weight");
}

TEST_F(PredictedBuffersTest, RefuseOneProjectionToAllLatents) {
  args_["mla_down_proj_fusion"] = true;
  EXPECT_THAT(Predict(), IsOk()) << "there are no latents";
  Add("decoder.layers.self_attention.linear_q_down_proj.weight", {2, 8, 8});
  ExpectRefused(ErrorKind::kUnsupported, "args.mla_down_proj_fusion");
}

TEST_F(PredictedBuffersTest, RefuseWhatMakesOtherBuffers) {
  for (const char* argument : {"fp8_param_gather", "fp4_param_gather", "fp16",
                               "overlap_param_gather_with_optimizer_step"}) {
    args_[argument] = true;
    ExpectRefused(ErrorKind::kUnsupported, fmt::format("args.{}", argument));
    args_[argument] = false;
  }
  args_["use_distributed_optimizer"] = false;
  ExpectRefused(ErrorKind::kUnsupported, "args.use_distributed_optimizer");
}

TEST_F(PredictedBuffersTest, RefuseWeightsOfAnotherDtypeThanTheModels) {
  args_["bf16"] = true;
  EXPECT_THAT(Predict(), IsOk());
  Add("decoder.final_layernorm.weight", {8}, DType::kFloat32);  // some stay float32
  EXPECT_THAT(Predict(), IsOk());
  args_["bf16"] = false;
  ExpectRefused(ErrorKind::kUnsupported, "embedding.word_embeddings.weight", "--dtype float32");
  args_["bf16"] = true;
  for (TargetTensor& tensor : tensors_) tensor.dtype = DType::kFloat32;
  ExpectRefused(ErrorKind::kUnsupported, "weight", "--dtype bfloat16");
}

TEST_F(PredictedBuffersTest, RefuseAnotherNumberOfLayersThanThereIs) {
  args_["pipeline_model_parallel_size"] = 65536;
  args_["num_layers"] = 65536;
  ExpectRefused(ErrorKind::kUnsupported, "args.num_layers");
}

TEST_F(PredictedBuffersTest, DenseModelsHaveNoTensorRanksOfExperts) {
  args_["expert_tensor_parallel_size"] = 2;
  EXPECT_THAT(Predict(), IsOk());
}

TEST(BufferArgumentsTest, OthersThanMegatronHasAreRefusedByName) {
  const std::pair<const char*, layout::Value> cases[] = {{"tensor_model_parallel_size", "2"},
                                                         {"tensor_model_parallel_size", 2.0},
                                                         {"pipeline_model_parallel_size", -2},
                                                         {"expert_model_parallel_size", 0},
                                                         {"world_size", std::int64_t{1} << 40},
                                                         {"overlap_grad_reduce", 1},
                                                         {"fp8_param_gather", "x"},
                                                         {"mla_down_proj_fusion", 1},
                                                         {"ddp_bucket_size", 1000.0},
                                                         {"transformer_impl", "foo"},
                                                         {"transformer_impl", 3}};
  for (const auto& [name, value] : cases) {
    const Status status = CheckBufferArguments({{name, value}});
    ASSERT_THAT(status, FailsWith(ErrorKind::kUnsupported)) << name;
    EXPECT_EQ(status.first().tensor, fmt::format("args.{}", name));
  }
  EXPECT_THAT(CheckBufferArguments({{"tensor_model_parallel_size", 1 << 10},
                                    {"pipeline_model_parallel_size", 1 << 10}}),
              FailsWith(ErrorKind::kUnsupported))
      << "more ranks than any run has";
  EXPECT_THAT(CheckBufferArguments({{"virtual_pipeline_model_parallel_size", layout::Value()},
                                    {"transformer_impl", "local"},
                                    {"overlap_grad_reduce", false},
                                    {"ddp_bucket_size", 1000}}),
              IsOk());
}

}  // namespace
}  // namespace ckpt::torch_dist
