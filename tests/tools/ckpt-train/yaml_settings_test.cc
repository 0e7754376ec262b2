#include "tools/ckpt-train/yaml_settings.h"

#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/testing/matchers.h"
#include "trainer/run/format_settings.h"

namespace ckpt::train {
namespace {

using layout::Value;
using testing::FailsWith;
using ::testing::HasSubstr;
using testing::IsOk;

layout::Configuration Parse(const std::string& yaml) {
  const auto settings = ParseYamlSettings(yaml, "run.yaml");
  EXPECT_THAT(settings, IsOk());
  return settings.ok() ? *settings : layout::Configuration();
}

TEST(YamlSettingsTest, TypesScalarsAsTheCoreSchemaDoes) {
  const layout::Configuration want = {
      {"a", 12},      {"b", -3},      {"c", 1e-4},   {"d", 2.5},   {"e", true},
      {"f", Value()}, {"g", "optim"}, {"h", "12"},   {"i", "yes"}, {"j", Value::List{127, 0}},
      {"k", "64MiB"}, {"l", 5},       {"m", ".inf"}, {"n", "nan"}, {"o", Value()}};
  EXPECT_EQ(Parse("a: 12\nb: -3\nc: 1e-4\nd: 2.5\ne: true\nf: null\ng: optim\nh: '12'\ni: yes\n"
                  "j: [127, 0]\nk: 64MiB\nl: +5\nm: .inf\nn: nan\no:\n"),
            want);
}

TEST(YamlSettingsTest, ReadsTwoSignsAsText) {
  const layout::Configuration want = {{"a", 5},       {"b", 2.5},   {"c", "+-5"},
                                      {"d", "+-2.5"}, {"e", "++5"}, {"f", "-+5"}};
  EXPECT_EQ(Parse("a: +5\nb: +2.5\nc: +-5\nd: +-2.5\ne: ++5\nf: -+5\n"), want);
}

TEST(YamlSettingsTest, MappingsOnlyGroupSettings) {
  const layout::Configuration want = {{"num_layers", 2}, {"lr", 0.1}};
  EXPECT_EQ(Parse("model:\n  num_layers: 2\nrun: {lr: 0.1}\n"), want);
  EXPECT_EQ(Parse(""), layout::Configuration());
}

TEST(YamlSettingsTest, RefusesANameThatStandsTwice) {
  for (const char* yaml : {"lr: 1\nlr: 2\n", "lr: 1\nrun:\n  lr: 2\n"}) {
    const auto settings = ParseYamlSettings(yaml, "run.yaml");
    ASSERT_THAT(settings.status(), FailsWith(ErrorKind::kUsage));
    EXPECT_THAT(settings.status().ToString(), HasSubstr("stands in the file twice: run.yaml:"));
  }
}

TEST(YamlSettingsTest, RefusesWhatIsNoMappingOfSettings) {
  for (const char* yaml : {"- 1\n", "lr", "lr: 1\n---\nlr: 2\n", "a: [[1]]", "a: [{b: 1}]",
                           "[a]: 1", "a: [1", "a: *none"}) {
    EXPECT_THAT(ParseYamlSettings(yaml, "run.yaml").status(), FailsWith(ErrorKind::kUsage)) << yaml;
  }
}

TEST(YamlSettingsTest, SaysHowAPatternIsQuoted) {
  const auto assignment = ParseAssignment("frozen=*.layernorm*");
  ASSERT_THAT(assignment.status(), FailsWith(ErrorKind::kUsage));
  EXPECT_THAT(assignment.status().first().hint, HasSubstr("'frozen=[\"*.name\"]'"));
}

TEST(YamlSettingsTest, RefusesAliasesThatGrowPastAnyConfiguration) {
  std::string yaml = "a0: &a0 {x: 1}\n";
  for (int level = 1; level < 12; ++level) {
    const std::string last = "*a" + std::to_string(level - 1);
    yaml += "a" + std::to_string(level) + ": &a" + std::to_string(level) + " {";
    for (int i = 0; i < 9; ++i) yaml += (i == 0 ? "y" : ", y") + std::to_string(i) + ": " + last;
    yaml += "}\n";
  }
  const auto settings = ParseYamlSettings(yaml, "run.yaml");
  ASSERT_THAT(settings.status(), FailsWith(ErrorKind::kUsage));
  EXPECT_THAT(settings.status().ToString(), HasSubstr("more values than any configuration has"));
}

// The library finds empty documents in it for ever.
TEST(YamlSettingsTest, RefusesATextThatNeverEnds) {
  const auto settings = ParseYamlSettings(",a: 1\n", "run.yaml");
  ASSERT_THAT(settings.status(), FailsWith(ErrorKind::kResource));
  EXPECT_THAT(settings.status().ToString(), HasSubstr("run.yaml"));
}

TEST(YamlSettingsTest, ReadsBackWhatItFormats) {
  const layout::Configuration settings = {{"a", true},    {"b", 0.1},
                                          {"c", 1.0},     {"d", "with: \"quotes\" # and more"},
                                          {"e", Value()}, {"f", Value::List{1, 2.5, "x"}},
                                          {"g", -7}};
  EXPECT_EQ(Parse(FormatSettings(settings)), settings);
}

TEST(AssignmentTest, TakesOneValue) {
  const auto list = ParseAssignment("window_size=[127, 0]");
  ASSERT_THAT(list, IsOk());
  EXPECT_EQ(list->first, "window_size");
  EXPECT_EQ(list->second, Value(Value::List{127, 0}));
  const auto path = ParseAssignment("init=hf:/a/b=c");
  ASSERT_THAT(path, IsOk());
  EXPECT_EQ(path->second, Value("hf:/a/b=c"));
  for (const char* text : {"lr", "=1", "lr=1, seed: 2", "lr={a: 1}", "lr=[1", "lr=1}\n{a: 2"}) {
    EXPECT_THAT(ParseAssignment(text).status(), FailsWith(ErrorKind::kUsage)) << text;
  }
}

}  // namespace
}  // namespace ckpt::train
