#include "converters/config/hf_config.h"

#include <cmath>
#include <limits>

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

TEST(HfConfig, ReadsTheNumbersThatPythonWritesAndJsonLacks) {
  const auto config =
      ParseHfConfig(R"({"a": NaN, "b": [Infinity, -Infinity], "text": "NaN \" Infinity", )"
                    R"("tagged": {"__float__": "Infinity"}})",
                    "config.json");
  ASSERT_THAT(config, IsOk());
  EXPECT_TRUE(std::isnan(*config->at("a").AsFloat()));
  const double infinity = std::numeric_limits<double>::infinity();
  EXPECT_EQ(config->at("b"), Value(Value::List{infinity, -infinity}));
  EXPECT_EQ(config->at("text"), Value("NaN \" Infinity"));
  EXPECT_EQ(config->at("tagged"), Value(infinity));
  EXPECT_THAT(ParseHfConfig(R"({"a": Nan})", "c"), FailsWith(ErrorKind::kBadMetadata));
  for (const char* text : {R"({"a": {"__float__": "NaN", "b": 1}})", R"({"a": {"__float__": "1"}})",
                           R"({"a": {"__float__": 1}})"}) {
    EXPECT_THAT(ParseHfConfig(text, "c"), FailsWith(ErrorKind::kBadMetadata)) << text;
  }
}

TEST(HfConfig, TakesForAKeyThatIsNotThereWhatItsClassTakes) {
  auto config = ParseHfConfig(R"({"model_type": "mistral"})", "c").value();
  EXPECT_EQ(config.at("sliding_window"), Value(4096));
  EXPECT_EQ(config.at("num_key_value_heads"), Value(8));
  EXPECT_FALSE(config.contains("n_group"));
  // A null is an answer, and no absence.
  config = ParseHfConfig(R"({"model_type": "mistral", "sliding_window": null})", "c").value();
  EXPECT_EQ(config.at("sliding_window"), Value());
  config = ParseHfConfig(R"({"model_type": "deepseek_v3", "num_local_experts": 8})", "c").value();
  EXPECT_EQ(config.at("n_group"), Value(8));
  EXPECT_FALSE(config.contains("n_routed_experts"));  // said under another name
}

TEST(HfConfig, ReadsRopeUnderItsOlderNames) {
  const auto config = ParseHfConfig(
                          R"({"rope_scaling": {"type": "linear", "factor": 2.0},
                              "rope_parameters": {"rope_type": "yarn", "rope_theta": 5.0}})",
                          "c")
                          .value();
  // Of both, transformers takes the older one, whole.
  EXPECT_EQ(config.at("rope_parameters.rope_type"), Value("linear"));
  EXPECT_EQ(config.at("rope_parameters.factor"), Value(2.0));
  EXPECT_EQ(config.size(), 2U);
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
