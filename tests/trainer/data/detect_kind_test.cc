#include "trainer/data/detect_kind.h"

#include <ostream>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "core/io/memory_storage.h"
#include "tests/testing/matchers.h"

namespace ckpt::trainer {
namespace {

using testing::FailsWith;
using ::testing::HasSubstr;
using testing::IsOk;
using testing::IsOkAndHolds;

struct LineCase {
  const char* line;
  DataKind kind;
};
void PrintTo(const LineCase& c, std::ostream* os) { *os << c.line; }

class KindOfLineTest : public ::testing::TestWithParam<LineCase> {};

TEST_P(KindOfLineTest, IsToldByTheFields) {
  EXPECT_THAT(KindOfLine(GetParam().line, "line"), IsOkAndHolds(GetParam().kind));
}

INSTANTIATE_TEST_SUITE_P(
    Lines, KindOfLineTest,
    ::testing::Values(LineCase{R"({"text": "a", "id": 7})", DataKind::kText},
                      LineCase{R"({"input_ids": [1, 2]})", DataKind::kTokenDocuments},
                      LineCase{R"({"input_ids": [1], "labels": [1]})", DataKind::kTokenExamples},
                      LineCase{R"({"loss_mask": [1], "input_ids": [1]})", DataKind::kTokenExamples},
                      LineCase{R"({"prompt": "a", "completion": "b"})", DataKind::kPrompts},
                      LineCase{R"({"prompt": "a", "messages": []})", DataKind::kMessages}));

TEST(KindOfLineTest, RefusesLinesOfNoneOrSeveralKinds) {
  for (const char* line : {"{}", R"({"prompt": "a"})", R"({"text": "a", "input_ids": [1]})"}) {
    EXPECT_THAT(KindOfLine(line, "line").status(), FailsWith(ErrorKind::kUsage)) << line;
  }
  EXPECT_THAT(KindOfLine("hello", "line").status(), FailsWith(ErrorKind::kBadMetadata));
}

class DetectKindTest : public ::testing::Test {
 protected:
  void Put(const char* path, std::string_view text) {
    ASSERT_THAT(WriteSmallFile(*storage_, path, AsBytes(text)), IsOk());
  }
  std::unique_ptr<Storage> storage_ = MakeMemoryStorage();
};

TEST_F(DetectKindTest, ReadsTheFirstLineThatHoldsSomething) {
  Put("/data.jsonl", "\n  \n{\"text\": \"a\"}\n{\"messages\": []}\n");
  EXPECT_THAT(DetectKind(*storage_, "/data.jsonl"), IsOkAndHolds(DataKind::kText));
}

TEST_F(DetectKindTest, APrefixIsOfMegatronsFiles) {
  Put("/data.bin", "");
  Put("/data.idx", "");
  EXPECT_THAT(DetectKind(*storage_, "/data"), IsOkAndHolds(DataKind::kIndexed));
  EXPECT_THAT(DetectKind(*storage_, "/data.bin").status().ToString(), HasSubstr("give /data"));
}

TEST_F(DetectKindTest, SaysWhatIsMissing) {
  EXPECT_THAT(DetectKind(*storage_, "/data").status(), FailsWith(ErrorKind::kNotFound));
  Put("/empty.jsonl", "\n\n");
  EXPECT_THAT(DetectKind(*storage_, "/empty.jsonl").status(), FailsWith(ErrorKind::kUsage));
}

}  // namespace
}  // namespace ckpt::trainer
