#include "converters/config/config_patch.h"

#include <gmock/gmock.h>

namespace ckpt {
namespace {

TEST(ConfigPatch, ReplacesOneValueAndNothingElse) {
  const std::string json =
      "{\n  \"a\": \"dtype\",\n  \"dtype\" : \"bfloat16\",\n  \"x\": {\"dtype\": "
      "\"bfloat16\"}\n}\n";
  EXPECT_EQ(ReplaceTextValue(json, "dtype", "float32"),
            "{\n  \"a\": \"dtype\",\n  \"dtype\" : \"float32\",\n  \"x\": {\"dtype\": "
            "\"bfloat16\"}\n}\n");
}

TEST(ConfigPatch, LeavesOtherTextsAlone) {
  for (const std::string json : {"{\"dtype\": null}", "{\"x\": {\"dtype\": \"a\"}}", "{}",
                                 "{\"a\\\"dtype\": \"b\"}", "[\"dtype\", \"a\"]"}) {
    EXPECT_EQ(ReplaceTextValue(json, "dtype", "float32"), json);
  }
}

TEST(ConfigPatch, DescribesBothSpellings) {
  EXPECT_EQ(
      DescribeDtype("{\"torch_dtype\": \"float16\", \"dtype\": \"float16\"}", DType::kBfloat16),
      "{\"torch_dtype\": \"bfloat16\", \"dtype\": \"bfloat16\"}");
}

}  // namespace
}  // namespace ckpt
