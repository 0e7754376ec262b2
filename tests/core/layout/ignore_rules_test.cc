#include "core/layout/internal/ignore_rules.h"

#include <string>
#include <vector>

#include <gmock/gmock.h>

#include "tests/testing/matchers.h"

namespace ckpt::layout {
namespace {

using testing::FailsWith;
using testing::IsOk;

// What the patterns become where `n` is 3, `list` is [0, 2], `none` is null and `text` a text.
Result<std::vector<std::string>> Resolve(const std::string& pattern) {
  Definitions definitions;
  for (const char* line : {"n = 3", "list = [0, 2]", "none = null", "text = \"t\"",
                           "mixed = [1, \"t\"]", "bad = 1 / 0"}) {
    CKPT_RETURN_IF_ERROR(definitions.Add(line));
  }
  const Configuration config;
  const DefinedNames names(definitions, config);
  CKPT_ASSIGN_OR_RETURN(const std::vector<IgnoreRule> rules,
                        ResolveIgnoreRules({{.pattern = pattern, .reason = "r"}}, names));
  std::vector<std::string> patterns;
  for (const IgnoreRule& rule : rules) patterns.push_back(rule.pattern);
  return patterns;
}

TEST(IgnoreRulesTest, PutNumbersInTheirPlaces) {
  using ::testing::ElementsAre;
  EXPECT_THAT(Resolve("a.*").value(), ElementsAre("a.*"));
  EXPECT_THAT(Resolve("a.<n>.b").value(), ElementsAre("a.3.b"));
  EXPECT_THAT(Resolve("a.<list>.<n>").value(), ElementsAre("a.0.3", "a.2.3"));
}

TEST(IgnoreRulesTest, RefuseWhatIsNoNumber) {
  for (const char* pattern :
       {"a.<n", "a.<text>", "a.<none>", "a.<mixed>", "a.<n>.<text>", "a.<bad>"}) {
    EXPECT_THAT(Resolve(pattern), FailsWith(ErrorKind::kBadMetadata)) << pattern;
  }
}

}  // namespace
}  // namespace ckpt::layout
