// Every step of a place is read as it was written.
#include "core/checkpoint/entry_path_json.h"

#include <cstdint>
#include <string>

#include <gtest/gtest.h>

#include "tests/testing/matchers.h"

namespace ckpt {
namespace {

using testing::FailsWith;
using testing::IsOkAndHolds;

Result<EntryPath> PathOf(const std::string& text) {
  CKPT_ASSIGN_OR_RETURN(const JsonDocument json, JsonDocument::Parse(text, "path"));
  return ReadEntryPath(json.root());
}

TEST(EntryPathJsonTest, TellsKeysOfEveryKindApart) {
  const EntryPath path = {std::string("True"), ConstantKey::kTrue, ConstantKey::kFalse,
                          ConstantKey::kNone,  NumberKey{1},       AttributeName{"a"},
                          std::int64_t{0}};
  const std::string text =
      R"(["True",{"key":true},{"key":false},{"key":null},{"key":1},{"attribute":"a"},0])";
  ASSERT_TRUE(HasJson(path));
  EXPECT_EQ(FormatEntryPath(path), text);
  EXPECT_THAT(PathOf(text), IsOkAndHolds(path));
}

TEST(EntryPathJsonTest, RefusesOtherSteps) {
  for (const char* text : {"[true]", "[null]", "[0.5]", R"([{"key":"a"}])", R"([{"key":0.5}])",
                           R"([{"key":[]}])", R"([{"key":1,"attribute":"a"}])", "[{}]", "7"}) {
    EXPECT_THAT(PathOf(text), FailsWith(ErrorKind::kBadMetadata)) << text;
  }
}

}  // namespace
}  // namespace ckpt
