#include "formats/megatron/internal/yaml.h"

#include <ostream>
#include <string>

#include <gmock/gmock.h>

#include "tests/testing/matchers.h"

namespace ckpt::megatron {
namespace {

using testing::FailsWith;
using ::testing::HasSubstr;
using testing::IsOkAndHolds;

// The words of YAML 1.1, as PyYAML's safe loader takes them.
TEST(YamlTest, ReadsPlainWordsAsPyYamlDoes) {
  EXPECT_THAT(YamlToJson("a: ~\nb:\nc: null\nd: yes\ne: Off\nf: 12\ng: -3\nh: 1.0e-06\ni: 1e-06\n"
                         "j: '12'\nk: \"yes\"\nl: .inf\nm: a b\n",
                         "x"),
              IsOkAndHolds(R"({"a":null,"b":null,"c":null,"d":true,"e":false,"f":12,"g":-3,)"
                           R"("h":1e-06,"i":"1e-06","j":"12","k":"yes","l":".inf","m":"a b"})"));
}

TEST(YamlTest, ReadsTwoSignsAsText) {
  EXPECT_THAT(YamlToJson("a: +5\nb: +2.5\nc: +-5\nd: +-2.5\ne: ++5\nf: -+5\n", "x"),
              IsOkAndHolds(R"({"a":5,"b":2.5,"c":"+-5","d":"+-2.5","e":"++5","f":"-+5"})"));
}

TEST(YamlTest, WritesAliasesOut) {
  EXPECT_THAT(YamlToJson("a: &id001\n  _call_: false\nb: *id001\nc: [1, {d: 2}]\n", "x"),
              IsOkAndHolds(R"({"a":{"_call_":false},"b":{"_call_":false},"c":[1,{"d":2}]})"));
}

struct BadCase {
  const char* name;
  std::string text;
  ErrorKind kind;
  const char* says;
};
void PrintTo(const BadCase& c, std::ostream* os) { *os << c.name; }

// Ten levels of aliases, each with ten of the one before.
std::string Bomb() {
  std::string text = "a0: &a0 [x]\n";
  for (int level = 1; level < 10; ++level) {
    text += "a" + std::to_string(level) + ": &a" + std::to_string(level) + " [";
    for (int i = 0; i < 10; ++i) text += (i == 0 ? "*a" : ", *a") + std::to_string(level - 1);
    text += "]\n";
  }
  return text;
}

class BadYamlTest : public ::testing::TestWithParam<BadCase> {};

TEST_P(BadYamlTest, IsRefusedByWhatIsWrong) {
  const auto json = YamlToJson(GetParam().text, "run_config.yaml");
  ASSERT_THAT(json, FailsWith(GetParam().kind));
  EXPECT_THAT(json.status().ToString(), HasSubstr(GetParam().says));
  EXPECT_THAT(json.status().ToString(), HasSubstr("run_config.yaml"));
}

INSTANTIATE_TEST_SUITE_P(
    Cases, BadYamlTest,
    ::testing::Values(
        BadCase{"Empty", "", ErrorKind::kBadMetadata, "not one mapping"},
        BadCase{"List", "- a\n", ErrorKind::kBadMetadata, "not one mapping"},
        BadCase{"TwoDocuments", "a: 1\n---\nb: 2\n", ErrorKind::kBadMetadata, "not one mapping"},
        BadCase{"Syntax", "a: [1\n", ErrorKind::kBadMetadata, "not YAML"},
        BadCase{"UnknownAlias", "a: *b\n", ErrorKind::kBadMetadata, "not YAML"},
        BadCase{"Twice", "a: 1\nb: 2\na: 3\n", ErrorKind::kBadMetadata, "twice"},
        BadCase{"KeyOfMany", "? [a, b]\n: 1\n", ErrorKind::kBadMetadata, "not plain text"},
        BadCase{"Object", "a: !!python/object:os.system {}\n", ErrorKind::kUnsupported, "a tag"},
        BadCase{"NotUtf8", "a: \"\xff\"\n", ErrorKind::kBadMetadata, "UTF-8"},
        BadCase{"Bomb", Bomb(), ErrorKind::kResource, "larger than any"},
        BadCase{"Deep", "a: " + std::string(100, '[') + std::string(100, ']'), ErrorKind::kResource,
                "larger than any"},
        BadCase{"VeryDeep", "a: " + std::string(100'000, '['), ErrorKind::kBadMetadata, "not YAML"},
        // yaml-cpp finds empty documents in it for ever.
        BadCase{"Endless", ",a: 1\n", ErrorKind::kResource, "larger than any"},
        BadCase{"Large", "a: " + std::string(kMaxYamlBytes, 'x'), ErrorKind::kResource,
                "larger than any"}),
    [](const auto& test) { return std::string(test.param.name); });

}  // namespace
}  // namespace ckpt::megatron
