// An optimizer in the buffers of ranks, as it is planned.
#include "formats/torch_dist/internal/packed_buffers.h"

#include <string>
#include <vector>

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/testing/matchers.h"

namespace ckpt::torch_dist {
namespace {

using ::testing::ElementsAre;
using testing::FailsWith;
using ::testing::HasSubstr;
using testing::IsOk;

constexpr const char* kLayers = "decoder.layers.mlp.router.weight";
constexpr const char* kHead = "output_layer.weight";
constexpr const char* kBucket =
    "optimizer.distributed.dp_group_idx_0.gbuf_idx_0.dtype_(torch.bfloat16, torch.float32)."
    "bucket_idx_0.";

class PackedBuffersTest : public ::testing::Test {
 protected:
  PackedBuffersTest() {
    Add(kLayers, {2, 3, 2});
    Add(kHead, {4, 2});
    buffers_ = {
        {.id = {.optimizer = "", .dtypes = "torch.bfloat16, torch.float32"},
         .buckets = {
             {.elems = 134,
              .parts = {{.name = kHead, .boxes = {{{0, 0}, {4, 2}}}, .begin = 0},
                        {.name = kLayers, .layer = 1, .boxes = {{{0, 0}, {3, 2}}}, .begin = 64},
                        {.name = kLayers,
                         .layer = 0,
                         .boxes = {{{2, 0}, {1, 2}}, {{0, 0}, {2, 2}}},
                         .begin = 128}}}}}};
  }

  void Add(const std::string& key, const Dims& shape) {
    tensors_.push_back({.key = key, .dtype = DType::kBfloat16, .shape = shape});
    for (const char* field : {"param", "exp_avg"}) {
      tensors_.push_back({.key = fmt::format("optimizer.state.{}.{}", field, key),
                          .dtype = DType::kFloat32,
                          .shape = shape});
    }
  }
  [[nodiscard]] Result<PackedBuffers> Pack() const { return PackBuffers(buffers_, tensors_); }
  std::vector<BufferPart>& parts() { return buffers_[0].buckets[0].parts; }

  std::vector<TargetTensor> tensors_;
  RankBuffers buffers_;
};

TEST_F(PackedBuffersTest, HaveEveryPartInItsPlace) {
  const auto packed = Pack();
  ASSERT_THAT(packed, IsOk());
  std::vector<std::string> keys;
  for (const TargetTensor& tensor : packed->tensors) keys.push_back(tensor.key);
  const std::string exact = std::string(kBucket) + "param";
  EXPECT_THAT(keys, ElementsAre(kLayers, kHead, std::string(kBucket) + "exp_avg", exact));
  EXPECT_EQ(packed->tensors.back().shape, Dims{134});
  EXPECT_EQ(packed->tensors.back().dtype, DType::kFloat32);
  const std::string of_layers = fmt::format("optimizer.state.param.{}", kLayers);
  EXPECT_THAT(
      packed->parts.at(exact),
      ElementsAre(PackedPart{fmt::format("optimizer.state.param.{}", kHead), {{0, 0}, {4, 2}}, 0},
                  PackedPart{of_layers, {{1, 0, 0}, {1, 3, 2}}, 64},
                  PackedPart{of_layers, {{0, 2, 0}, {1, 1, 2}}, 128},
                  PackedPart{of_layers, {{0, 0, 0}, {1, 2, 2}}, 130}));
  EXPECT_THAT(packed->chunk_ends.at(exact), ElementsAre(0, 8, 64, 70, 128, 134));
}

TEST_F(PackedBuffersTest, HaveWhatRanksShareMoreThanOnce) {
  buffers_.push_back(buffers_[0]);
  buffers_[1].id.group = 1;
  EXPECT_THAT(Pack(), IsOk());
}

TEST_F(PackedBuffersTest, FindLayersThatAreNotStacked) {
  tensors_.clear();
  Add("decoder.layers.0.mlp.router.weight", {3, 2});
  Add("decoder.layers.1.mlp.router.weight", {3, 2});
  Add(kHead, {4, 2});
  const auto packed = Pack();
  ASSERT_THAT(packed, IsOk());
  EXPECT_EQ(packed->parts.begin()->second.at(1).tensor,
            "optimizer.state.exp_avg.decoder.layers.1.mlp.router.weight");
}

TEST_F(PackedBuffersTest, RefuseAParameterThatTheTargetDoesNotHave) {
  parts()[0].name = "decoder.final_layernorm.weight";
  const auto packed = Pack();
  ASSERT_THAT(packed, FailsWith(ErrorKind::kUnsupported));
  EXPECT_EQ(packed.status().first().tensor, "decoder.final_layernorm.weight");
  EXPECT_THAT(packed.status().first().hint, HasSubstr("fully_reshardable"));
}

TEST_F(PackedBuffersTest, RefuseAPartThatTheWeightDoesNotHave) {
  parts()[0].boxes[0].sizes[0] = 5;
  EXPECT_THAT(Pack(), FailsWith(ErrorKind::kUnsupported));
}

TEST_F(PackedBuffersTest, RefuseAPartThatIsNotFoundAgain) {
  const std::string key = "decoder.layers.mixer.in_proj.weight";
  for (const std::int64_t rows : {3, 2}) {
    tensors_.clear();
    Add(key, {1, 3, 2});
    parts() = {{.name = key, .boxes = {{{0, 0}, {rows, 2}}}, .begin = 0}};
    const auto packed = Pack();
    if (rows == 3) {
      EXPECT_THAT(packed, IsOk());
      continue;
    }
    ASSERT_THAT(packed, FailsWith(ErrorKind::kUnsupported));
    EXPECT_EQ(packed.status().first().tensor, key);
    EXPECT_THAT(packed.status().first().message, HasSubstr("not known how tensor ranks divide"));
  }
}

// A reader tries equal rows where each rank need not have all.
TEST_F(PackedBuffersTest, HaveEqualRowsOfAProjectionToLatents) {
  const std::string key = "decoder.layers.self_attention.linear_q_down_proj.weight";
  for (const std::int64_t rows : {4, 3, 2}) {
    tensors_.clear();
    Add(key, {1, 4, 2});
    parts() = {{.name = key, .boxes = {{{0, 0}, {rows, 2}}}, .begin = 0}};
    if (rows < 4) {
      parts().push_back({.name = key, .boxes = {{{rows, 0}, {4 - rows, 2}}}, .begin = 64});
    }
    const auto packed = Pack();
    if (rows != 3) {
      EXPECT_THAT(packed, IsOk()) << rows;
      continue;
    }
    ASSERT_THAT(packed, FailsWith(ErrorKind::kUnsupported));
    EXPECT_THAT(packed.status().first().message, HasSubstr("not known how tensor ranks divide"));
  }
}

TEST_F(PackedBuffersTest, RefuseAWeightWithoutAPlace) {
  parts().pop_back();
  const auto packed = Pack();
  ASSERT_THAT(packed, FailsWith(ErrorKind::kUnsupported));
  EXPECT_EQ(packed.status().first().tensor, kLayers);
  EXPECT_EQ(packed.status().first().actual, "6");
}

TEST_F(PackedBuffersTest, RefuseWeightsOfAnotherDtype) {
  for (const char* dtypes : {"torch.float32, torch.float32", "torch.bfloat16, float", "torch."}) {
    buffers_[0].id.dtypes = dtypes;
    EXPECT_THAT(Pack(), FailsWith(ErrorKind::kUnsupported)) << dtypes;
  }
}

TEST_F(PackedBuffersTest, RefuseFloat16) {
  for (TargetTensor& tensor : tensors_) {
    if (tensor.dtype == DType::kBfloat16) tensor.dtype = DType::kFloat16;
  }
  buffers_[0].id.dtypes = "torch.float16, torch.float32";
  const auto packed = Pack();
  ASSERT_THAT(packed, FailsWith(ErrorKind::kUnsupported));
  EXPECT_THAT(packed.status().first().message, HasSubstr("loss scale"));
}

TEST_F(PackedBuffersTest, RefuseStatesOfSeveralDtypes) {
  tensors_[1].dtype = DType::kBfloat16;
  EXPECT_THAT(Pack(), FailsWith(ErrorKind::kDtypeMismatch));
}

TEST_F(PackedBuffersTest, KnowTheOptimizerOfExperts) {
  EXPECT_THAT(HaveExpertOptimizer(buffers_), testing::IsOkAndHolds(false));
  buffers_[0].id.optimizer = "chained_0.";
  EXPECT_THAT(HaveExpertOptimizer(buffers_), testing::IsOkAndHolds(true));
  buffers_[0].id.optimizer = "chained_1.";
  EXPECT_THAT(HaveExpertOptimizer(buffers_), FailsWith(ErrorKind::kUnsupported));
  buffers_[0].id.optimizer = "chained_2.";
  EXPECT_THAT(HaveExpertOptimizer(buffers_), FailsWith(ErrorKind::kUnsupported));
}

TEST_F(PackedBuffersTest, AreThoseOfTheRanksThatArgumentsName) {
  EXPECT_THAT(CheckRanks(buffers_, {}), IsOk());
  layout::Configuration args = {{"tensor_model_parallel_size", 2}};
  EXPECT_THAT(CheckRanks(buffers_, args), FailsWith(ErrorKind::kUnsupported));
  buffers_.push_back(buffers_[0]);
  buffers_[1].id.group = 1;
  EXPECT_THAT(CheckRanks(buffers_, args), IsOk());
  EXPECT_THAT(CheckRanks(buffers_, {}), FailsWith(ErrorKind::kUnsupported));
}

TEST_F(PackedBuffersTest, StoreTheirSizesAndTheGroupsBesideThem) {
  TrainingRun run;
  run.groups = {{.step = 3}};
  run.args = {{"world_size", 6}, {"tensor_model_parallel_size", 2}};
  std::vector<std::string> keys;
  for (const PickledEntry& object : ObjectsBesideBuffers(buffers_, run, false)) {
    keys.push_back(object.key);
  }
  EXPECT_THAT(keys, ElementsAre("optimizer.distributed.dp_group_idx_0.optimizer/shard_0_1",
                                "optimizer.distributed.dp_group_idx_0.per_bucket_numel/shard_0_1",
                                "optimizer.distributed.dp_group_idx_0.per_bucket_numel_unpadded/"
                                "shard_0_1"));
}

}  // namespace
}  // namespace ckpt::torch_dist
