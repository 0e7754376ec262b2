#include "formats/mp_rank/internal/global_name.h"

#include <gmock/gmock.h>

#include "tests/testing/matchers.h"

namespace ckpt::mp_rank {
namespace {

using testing::FailsWith;
using testing::IsOk;
using testing::IsOkAndHolds;

TEST(LocalNameTest, IsWhatStandsBehindTheModel) {
  EXPECT_EQ(ParseLocalName("model.a.b")->name, "a.b");
  EXPECT_EQ(ParseLocalName("model12.a.b")->part, 12);
  EXPECT_EQ(ParseLocalName("model12.a.b")->name, "a.b");
  for (const char* key : {"model", "models.a", "model1", "optimizer.a", "", "modelx.a",
                          "model99999999999999999999.a"}) {
    EXPECT_EQ(ParseLocalName(key), std::nullopt) << key;
  }
}

// Two stages with two parts each: parts 0 of both stages come first.
TEST(LayerOffsetsTest, CountLayersOfPartsAcrossStages) {
  LayerOffsets offsets;
  for (const std::int64_t stage : {1, 0}) {
    for (const std::int64_t part : {0, 1}) {
      for (const char* name : {"decoder.layers.0.a", "decoder.layers.1.a", "embedding"}) {
        ASSERT_THAT(offsets.Note(stage, {.part = part, .name = name}), IsOk());
      }
    }
  }
  ASSERT_THAT(offsets.Note(1, {.part = 1, .name = "decoder.layers.2.a"}), IsOk());
  EXPECT_EQ(offsets.Finish(), 9);
  EXPECT_EQ(offsets.GlobalName(1, {.part = 0, .name = "decoder.layers.1.a"}), "decoder.layers.3.a");
  EXPECT_EQ(offsets.GlobalName(0, {.part = 1, .name = "decoder.layers.0.a"}), "decoder.layers.4.a");
  EXPECT_EQ(offsets.GlobalName(1, {.part = 1, .name = "decoder.layers.2.a"}), "decoder.layers.8.a");
  EXPECT_EQ(offsets.GlobalName(1, {.part = 1, .name = "embedding"}), "embedding");
}

TEST(LayerOffsetsTest, RefuseAnAbsurdNumber) {
  LayerOffsets offsets;
  for (const char* name : {"decoder.layers.9999999.a", "decoder.layers.99999999999999999999.a"}) {
    EXPECT_THAT(offsets.Note(0, {.name = name}), FailsWith(ErrorKind::kBadMetadata)) << name;
  }
}

TEST(ExpertNumberTest, CountsThoseOfRanksBefore) {
  EXPECT_THAT(WithExpertNumber("l.mlp.experts.local_experts.1.linear_fc1.weight", 4),
              IsOkAndHolds(std::string("l.mlp.experts.local_experts.5.linear_fc1.weight")));
  EXPECT_THAT(WithExpertNumber("l.mlp.experts.linear_fc2.weight0", 4),
              IsOkAndHolds(std::string("l.mlp.experts.linear_fc2.weight4")));
  EXPECT_THAT(WithExpertNumber("l.mlp.shared_experts.linear_fc2.weight", 4),
              IsOkAndHolds(std::string("l.mlp.shared_experts.linear_fc2.weight")));
  EXPECT_THAT(WithExpertNumber("l.mlp.experts.linear_fc2.weight99999999999999999999", 4),
              FailsWith(ErrorKind::kBadMetadata));
}

TEST(ExpertNumberTest, IsInTheNamesThatAreKnown) {
  EXPECT_TRUE(NumbersExpert("l.mlp.experts.local_experts.1.linear_fc1.weight"));
  EXPECT_TRUE(NumbersExpert("l.mlp.experts.linear_fc2.weight0"));
  for (const char* name : {"l.mlp.experts.weight1", "l.mlp.experts.linear_fc1.weight",
                           "l.mlp.experts.linear_fc1.adapter.weight0", "l.mlp.router.weight"}) {
    EXPECT_FALSE(NumbersExpert(name)) << name;
  }
}

}  // namespace
}  // namespace ckpt::mp_rank
