#include "converters/config/hf_config.h"

#include <gtest/gtest.h>

#include "tests/testing/matchers.h"

namespace ckpt {
namespace {

using layout::Value;
using testing::FailsWith;
using testing::IsOk;

TEST(HfConfig, FlattensNestedObjectsAndKeepsKinds) {
  const auto config = ParseHfConfig(
      R"({"hidden_size": 8, "rms_norm_eps": 1e-6, "rope_parameters": {"rope_theta": 500000.0,
          "nested": {"x": true}}, "sliding_window": null, "layer_types": ["full"], "eos": [1, 2]})",
      "config.json");
  ASSERT_THAT(config, IsOk());
  EXPECT_EQ(config->at("hidden_size"), Value(8));
  EXPECT_EQ(config->at("rms_norm_eps"), Value(1e-6));
  EXPECT_EQ(config->at("rope_parameters.rope_theta"), Value(500000.0));
  EXPECT_EQ(config->at("rope_parameters.nested.x"), Value(true));
  EXPECT_EQ(config->at("sliding_window"), Value());
  EXPECT_EQ(config->at("layer_types"), Value(Value::List{"full"}));
  EXPECT_EQ(config->at("eos"), Value(Value::List{1, 2}));
}

TEST(HfConfig, RefusesWhatIsNoConfiguration) {
  EXPECT_THAT(ParseHfConfig("[1]", "c"), FailsWith(ErrorKind::kBadMetadata));
  EXPECT_THAT(ParseHfConfig("{", "c"), FailsWith(ErrorKind::kBadMetadata));
  EXPECT_THAT(ParseHfConfig(R"({"a": 1, "a": 2})", "c"), FailsWith(ErrorKind::kBadMetadata));
  EXPECT_THAT(ParseHfConfig(R"({"a.b": 1, "a": {"b": 2}})", "c"),
              FailsWith(ErrorKind::kBadMetadata));
}

}  // namespace
}  // namespace ckpt
