#include "formats/megatron/division.h"

#include <limits>

#include <gmock/gmock.h>

#include "tests/testing/matchers.h"

namespace ckpt::megatron {
namespace {

using testing::FailsWith;
using testing::IsOk;

TEST(DivisionTest, FollowsFromTheName) {
  const auto of = [](std::string_view name) { return DivisionOf(name, true); };
  EXPECT_EQ(of("embedding.word_embeddings.weight"), Division::kRows);
  EXPECT_EQ(of("decoder.layers.3.self_attention.linear_qkv.weight"), Division::kRows);
  EXPECT_EQ(of("decoder.layers.3.self_attention.linear_qkv.layer_norm_weight"), Division::kWhole);
  EXPECT_EQ(of("decoder.layers.3.self_attention.q_layernorm.weight"), Division::kWhole);
  EXPECT_EQ(of("decoder.layers.3.self_attention.linear_proj.weight"), Division::kColumns);
  EXPECT_EQ(of("decoder.layers.3.self_attention.linear_proj.bias"), Division::kWhole);
  EXPECT_EQ(of("decoder.layers.3.self_attention.core_attention.softmax_offset"), Division::kRows);
  EXPECT_EQ(of("decoder.layers.3.mlp.router.bias"), Division::kWhole);
  EXPECT_EQ(of("decoder.layers.3.mlp.experts.linear_fc1.bias12"), Division::kHalves);
  EXPECT_EQ(of("decoder.layers.3.mlp.experts.linear_fc2.bias12"), Division::kWhole);
  EXPECT_EQ(of("decoder.layers.3.mlp.linear_fc1.weight"), Division::kHalves);
  EXPECT_EQ(of("decoder.layers.3.mlp.linear_fc1.layer_norm_weight"), Division::kWhole);
  EXPECT_EQ(of("decoder.layers.3.mlp.experts.linear_fc1.weight12"), Division::kHalves);
  EXPECT_EQ(of("decoder.layers.3.mlp.experts.local_experts.1.linear_fc2.weight"),
            Division::kColumns);
  EXPECT_EQ(of("mtp.layers.0.enorm.weight"), Division::kWhole);
  EXPECT_EQ(of("mtp.layers.0.hnorm.bias"), Division::kWhole);
  EXPECT_EQ(of("mtp.layers.0.eh_proj.weight"), Division::kRows);
  EXPECT_EQ(of("mtp.layers.0.final_layernorm.weight"), Division::kWhole);
  EXPECT_EQ(of("mtp.layers.0.mtp_model_layer.mlp.linear_fc2.weight"), Division::kColumns);
  EXPECT_EQ(DivisionOf("decoder.layers.3.mlp.linear_fc1.bias", false), Division::kRows);
  EXPECT_EQ(of("decoder.layers.3.self_attention.linear_q_down_proj.weight"), std::nullopt);
  EXPECT_EQ(of("language_model.encoder.layers.0.mlp.dense_h_to_4h.weight"), std::nullopt);
}

TEST(PlacePartTest, PutsHalvesOfEachRankWhereTheyBelong) {
  const auto placed = PlacePart(Division::kHalves, Dims{6, 5}, 1, 4);
  ASSERT_THAT(placed, IsOk());
  EXPECT_EQ(placed->shape, (Dims{24, 5}));
  ASSERT_EQ(placed->rows.size(), 2U);
  EXPECT_EQ(placed->rows[0].first_row, 0);
  EXPECT_EQ(placed->rows[0].box, (Box{.offsets = {3, 0}, .sizes = {3, 5}}));
  EXPECT_EQ(placed->rows[1].first_row, 3);
  EXPECT_EQ(placed->rows[1].box, (Box{.offsets = {15, 0}, .sizes = {3, 5}}));
}

// Whatever the division, the parts of all ranks cover the tensor exactly once.
TEST(PlacePartTest, TilesTheTensor) {
  for (const Division division : {Division::kRows, Division::kColumns, Division::kHalves}) {
    for (const std::int64_t ranks : {1, 2, 3, 8}) {
      std::vector<Box> boxes;
      Dims shape;
      for (std::int64_t rank = 0; rank < ranks; ++rank) {
        const auto placed = PlacePart(division, Dims{4, 6}, rank, ranks);
        ASSERT_THAT(placed, IsOk());
        shape = placed->shape;
        for (const PlacedRows& rows : placed->rows) boxes.push_back(rows.box);
      }
      EXPECT_TRUE(ProveCover(shape, boxes).exact()) << ranks;
    }
  }
}

TEST(PlacePartTest, RefusesWhatCannotBeAPart) {
  EXPECT_THAT(PlacePart(Division::kHalves, Dims{5, 2}, 0, 2), FailsWith(ErrorKind::kShapeMismatch));
  EXPECT_THAT(PlacePart(Division::kColumns, Dims{5}, 0, 2), FailsWith(ErrorKind::kShapeMismatch));
  EXPECT_THAT(PlacePart(Division::kRows, Dims{}, 0, 2), FailsWith(ErrorKind::kShapeMismatch));
  const std::int64_t huge = std::numeric_limits<std::int64_t>::max() / 2;
  EXPECT_THAT(PlacePart(Division::kRows, Dims{huge, 0}, 0, 4), FailsWith(ErrorKind::kResource));
}

}  // namespace
}  // namespace ckpt::megatron
