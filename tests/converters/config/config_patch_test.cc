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

TEST(ConfigPatch, RemovesOneMemberAndNothingElse) {
  struct Case {
    const char* json;
    const char* want;
  };
  for (const Case& c : {Case{"{\n  \"a\": 1,\n  \"q\": {\"b\": [\"}\", 2]},\n  \"c\": 3\n}\n",
                             "{\n  \"a\": 1,\n  \"c\": 3\n}\n"},
                        Case{"{\n  \"a\": 1,\n  \"q\": {\"b\": {}}\n}\n", "{\n  \"a\": 1\n}\n"},
                        Case{"{\n  \"q\" : null ,\n  \"c\": 3\n}", "{\n  \"c\": 3\n}"},
                        Case{"{\"q\":12}", "{}"}, Case{"{ \"q\": \"text, }\" }", "{ }"},
                        Case{"{\"a\": {\"q\": 1}}", "{\"a\": {\"q\": 1}}"}, Case{"{}", "{}"}}) {
    EXPECT_EQ(RemoveMember(c.json, "q"), c.want) << c.json;
  }
}

TEST(ConfigPatch, DescribesBothSpellings) {
  EXPECT_EQ(
      DescribeDtype("{\"torch_dtype\": \"float16\", \"dtype\": \"float16\"}", DType::kBfloat16),
      "{\"torch_dtype\": \"bfloat16\", \"dtype\": \"bfloat16\"}");
}

}  // namespace
}  // namespace ckpt
