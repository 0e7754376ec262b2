#include "trainer/data/example.h"

#include <string>

#include <gmock/gmock.h>

#include "tests/testing/matchers.h"
#include "trainer/data/byte_tokenizer.h"
#include "trainer/data/sequence_source.h"

namespace ckpt::trainer {
namespace {

using ckpt::testing::FailsWith;
using ckpt::testing::IsOk;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr std::string_view kWhere = "data.jsonl:17";

Result<Example> Parse(ExampleKind kind, std::string_view line, bool whole_documents = false) {
  return ParseExample(
      line, kWhere,
      {.kind = kind, .vocab_size = kByteVocabSize, .whole_documents = whole_documents});
}

// Tokens as text, ends as '$'; what is not learned as '.' in the second line.
std::string Shown(const Example& example) {
  std::string tokens;
  std::string learned;
  const auto letter = [](std::int32_t t) {
    return t == kByteEos ? '$' : t == '\n' ? '|' : static_cast<char>(t);
  };
  for (const std::int32_t token : example.tokens) tokens += letter(token);
  for (const std::int32_t target : example.targets)
    learned += target == kNoLabel ? '.' : letter(target);
  return tokens + "\n" + learned;
}

TEST(ExampleTest, TokensAreAllLearnedUnlessTheLineSaysOtherwise) {
  const auto plain = Parse(ExampleKind::kTokens, R"({"input_ids": [5, 6, 7], "id": {"a": [1]}})");
  ASSERT_THAT(plain, IsOk());
  EXPECT_THAT(plain->tokens, ElementsAre(5, 6, 7));
  EXPECT_THAT(plain->targets, ElementsAre(5, 6, 7));
  const auto labels =
      Parse(ExampleKind::kTokens, R"({"labels": [-100, 9, -1], "input_ids": [5, 6, 7]})");
  ASSERT_THAT(labels, IsOk());
  EXPECT_THAT(labels->tokens, ElementsAre(5, 6, 7));
  EXPECT_THAT(labels->targets, ElementsAre(kNoLabel, 9, kNoLabel));
  const auto mask =
      Parse(ExampleKind::kTokens, R"({"input_ids": [5, 6, 7], "loss_mask": [1, 0, 1]})");
  ASSERT_THAT(mask, IsOk());
  EXPECT_THAT(mask->targets, ElementsAre(5, kNoLabel, 7));
}

TEST(ExampleTest, TextIsItsBytesAndAnEnd) {
  const auto text = Parse(ExampleKind::kText, R"({"text": "a\u00e9"})");
  ASSERT_THAT(text, IsOk());
  EXPECT_THAT(text->tokens, ElementsAre('a', 0xC3, 0xA9, kByteEos));
  EXPECT_EQ(text->targets, text->tokens);
  EXPECT_EQ(TextOfByteTokens(text->tokens), "a\xC3\xA9");
  EXPECT_THAT(Parse(ExampleKind::kText, R"({"text": ""})", true)->tokens, ElementsAre(kByteEos));
}

TEST(ExampleTest, OnlyTheCompletionIsLearned) {
  const auto example = Parse(ExampleKind::kPrompt, R"({"prompt": "2+2=", "completion": "4"})");
  ASSERT_THAT(example, IsOk());
  EXPECT_EQ(Shown(*example), "2+2=4$\n....4$");
}

TEST(ExampleTest, OnlyWhatTheAssistantSaysIsLearned) {
  const auto example = Parse(ExampleKind::kMessages, R"({"messages": [
      {"role": "system", "content": "S"}, {"role": "user", "content": "hi"},
      {"role": "assistant", "content": "yo", "name": "x"}, {"role": "tool", "content": "T"},
      {"content": "ok", "role": "assistant"}]})");
  ASSERT_THAT(example, IsOk());
  EXPECT_EQ(Shown(*example),
            "system: S|user: hi|assistant: yo$tool: T|assistant: ok$\n"
            "..............................yo$...................ok$");
}

struct BadLine {
  const char* name;
  ExampleKind kind;
  const char* line;
  ErrorKind error;
  const char* says;  // the field, mostly
};
void PrintTo(const BadLine& c, std::ostream* os) { *os << c.name; }

class BadLineTest : public ::testing::TestWithParam<BadLine> {};

TEST_P(BadLineTest, IsRefusedByFileLineAndField) {
  const auto example = Parse(GetParam().kind, GetParam().line);
  ASSERT_THAT(example, FailsWith(GetParam().error));
  EXPECT_EQ(example.status().first().file, kWhere);
  EXPECT_THAT(example.status().ToString(), HasSubstr(GetParam().says));
}

using enum ExampleKind;
INSTANTIATE_TEST_SUITE_P(
    Lines, BadLineTest,
    ::testing::Values(
        BadLine{"NoJson", kText, "text", ErrorKind::kBadMetadata, "object"},
        BadLine{"CutOff", kText, R"({"text": "a)", ErrorKind::kBadMetadata, "text"},
        BadLine{"TwoValues", kText, R"({"text": "a"} {})", ErrorKind::kBadMetadata, "text"},
        BadLine{"AnArray", kText, R"(["text"])", ErrorKind::kBadMetadata, "object"},
        BadLine{"NotUtf8", kText, "{\"text\": \"\xFF\"}", ErrorKind::kBadMetadata, "UTF-8"},
        BadLine{"NoText", kText, R"({"txt": "a"})", ErrorKind::kBadItem, "\"text\" is missing"},
        BadLine{"EmptyText", kText, R"({"text": ""})", ErrorKind::kBadItem, "\"text\""},
        BadLine{"TextTwice", kText, R"({"text": "a", "text": "b"})", ErrorKind::kBadItem,
                "\"text\" occurs twice"},
        BadLine{"TextIsNull", kText, R"({"text": null})", ErrorKind::kBadItem, "\"text\" must be"},
        BadLine{"NoIds", kTokens, R"({"labels": [1]})", ErrorKind::kBadItem, "\"input_ids\""},
        BadLine{"OneId", kTokens, R"({"input_ids": [1]})", ErrorKind::kBadItem, "\"input_ids\""},
        BadLine{"Fraction", kTokens, R"({"input_ids": [1, 2.5]})", ErrorKind::kBadMetadata,
                "input_ids"},
        BadLine{"TextForIds", kTokens, R"({"input_ids": "12"})", ErrorKind::kBadItem,
                "\"input_ids\""},
        BadLine{"PastVocabulary", kTokens, R"({"input_ids": [1, 258]})", ErrorKind::kOutOfRange,
                "\"input_ids\""},
        BadLine{"NegativeId", kTokens, R"({"input_ids": [1, -1]})", ErrorKind::kOutOfRange,
                "\"input_ids\""},
        BadLine{"HugeId", kTokens, R"({"input_ids": [1, 4294967297]})", ErrorKind::kOutOfRange,
                "\"input_ids\""},
        BadLine{"FewerLabels", kTokens, R"({"input_ids": [1, 2], "labels": [1]})",
                ErrorKind::kBadItem, "\"labels\""},
        BadLine{"StrangeLabel", kTokens, R"({"input_ids": [1, 2], "labels": [1, -2]})",
                ErrorKind::kOutOfRange, "\"labels\""},
        BadLine{"MoreMask", kTokens, R"({"input_ids": [1, 2], "loss_mask": [1, 1, 1]})",
                ErrorKind::kBadItem, "\"loss_mask\""},
        BadLine{"MaskOfTwo", kTokens, R"({"input_ids": [1, 2], "loss_mask": [1, 2]})",
                ErrorKind::kBadItem, "\"loss_mask\""},
        BadLine{"LabelsAndMask", kTokens,
                R"({"input_ids": [1, 2], "loss_mask": [1, 1], "labels": [1, 2]})",
                ErrorKind::kBadItem, "\"loss_mask\""},
        BadLine{"NoPrompt", kPrompt, R"({"completion": "a"})", ErrorKind::kBadItem, "\"prompt\""},
        BadLine{"NoCompletion", kPrompt, R"({"prompt": "a"})", ErrorKind::kBadItem,
                "\"completion\""},
        BadLine{"NothingSaid", kPrompt, R"({"prompt": "", "completion": ""})", ErrorKind::kBadItem,
                "\"completion\""},
        BadLine{"NoMessages", kMessages, R"({"message": []})", ErrorKind::kBadItem, "\"messages\""},
        BadLine{"NoAnswer", kMessages, R"({"messages": [{"role": "user", "content": "a"}]})",
                ErrorKind::kBadItem, "\"messages\""},
        BadLine{"NoRole", kMessages, R"({"messages": [{"content": "a"}]})", ErrorKind::kBadItem,
                "\"role\""},
        BadLine{"NoContent", kMessages, R"({"messages": [{"role": "user"}]})", ErrorKind::kBadItem,
                "\"content\""},
        BadLine{"StrangeRole", kMessages, R"({"messages": [{"role": "bot", "content": "a"}]})",
                ErrorKind::kBadItem, "\"bot\""},
        BadLine{"ContentInParts", kMessages, R"({"messages": [{"role": "user", "content": []}]})",
                ErrorKind::kBadItem, "\"content\""}),
    [](const auto& test) { return std::string(test.param.name); });

TEST(ExampleTest, DocumentsRefuseWhatPicksLabels) {
  EXPECT_THAT(Parse(kTokens, R"({"input_ids": [1, 2], "labels": [1, 2]})", true),
              FailsWith(ErrorKind::kBadItem));
  EXPECT_THAT(Parse(kTokens, R"({"input_ids": [1, 2], "loss_mask": [1, 1]})", true),
              FailsWith(ErrorKind::kBadItem));
  EXPECT_THAT(Parse(kTokens, R"({"input_ids": [1]})", true), IsOk());
}

// Whatever is cut off or flipped, a line is an example whose parts agree, or an error of this
// place.
TEST(ExampleTest, AnyDamageIsAnErrorOrAnExample) {
  const std::string line = R"({"input_ids": [5, 16, 7], "labels": [-100, 6, 7], "x": {"y": null}})";
  const auto check = [](const std::string& damaged) {
    const auto example = Parse(kTokens, damaged);
    if (example.ok()) {
      ASSERT_EQ(example->tokens.size(), example->targets.size());
      ASSERT_GE(example->tokens.size(), 2U);
    } else {
      ASSERT_EQ(example.status().first().file, kWhere);
    }
  };
  for (std::size_t length = 0; length < line.size(); ++length) check(line.substr(0, length));
  for (std::size_t i = 0; i < line.size(); ++i) {
    for (int flip = 1; flip < 256; ++flip) {
      std::string damaged = line;
      damaged[i] = static_cast<char>(damaged[i] ^ flip);
      check(damaged);
    }
  }
}

}  // namespace
}  // namespace ckpt::trainer
