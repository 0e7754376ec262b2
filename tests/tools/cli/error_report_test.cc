#include "tools/cli/error_report.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace ckpt::cli {
namespace {

using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::StartsWith;

struct Capture {
  StringOutput out;
  StringOutput err;
  Streams streams{.out = out, .err = err};
};

Status Mismatch() {
  return Error(ErrorKind::kChecksum, "record CRC-32 differs")
      .File("run/a.distcp [64, +128)")
      .Tensor("model.w")
      .Expected("01020304")
      .Actual("05060708")
      .Hint("copy the file again");
}

TEST(ConcludeTest, PrintsTheWholeCaseOnStandardError) {
  Capture capture;
  EXPECT_EQ(Conclude(Mismatch(), false, capture.streams), ExitCode::kFailed);
  EXPECT_EQ(capture.err.text(),
            "error: checksum: record CRC-32 differs: run/a.distcp [64, +128): model.w: expected "
            "01020304, found 05060708\nhint: copy the file again\n");
  EXPECT_THAT(capture.out.text(), IsEmpty());
}

TEST(ConcludeTest, PutsErrorsIntoTheDocument) {
  Capture capture;
  (void)Conclude(Mismatch(), true, capture.streams);
  EXPECT_THAT(capture.out.text(), StartsWith("{\"ok\":false,\"errors\":["));
  EXPECT_THAT(capture.out.text(), HasSubstr("\"kind\":\"checksum\""));
  EXPECT_THAT(capture.out.text(), HasSubstr("\"actual\":\"05060708\""));
}

Status LostFile(std::string_view file, std::string_view tensor) {
  return Error(ErrorKind::kMissingFile, "gone").File(file).Tensor(tensor);
}

TEST(ConcludeTest, TellsOfALostFileOnceWithAllThatNeedsIt) {
  Status status = LostFile("b", "one");
  for (const char* tensor : {"t1", "t2", "t3", "t4", "t5"}) status.Add(LostFile("a", tensor));
  status.Add(Error(ErrorKind::kMissing, "lacks").Tensor("t1"));
  status.Add(Error(ErrorKind::kMissing, "lacks").Tensor("t2"));
  Capture capture;
  (void)Conclude(status, true, capture.streams);
  EXPECT_EQ(capture.err.text(),
            "error: missing_file: gone: b: one\n"
            "error: missing_file: gone: a: t1, t2, t3 and 2 more\n"
            "error: missing: lacks: t1\nerror: missing: lacks: t2\n");
  EXPECT_THAT(capture.out.text(), HasSubstr("\"tensor\":\"t1\""));
  EXPECT_THAT(capture.out.text(), HasSubstr("\"t4\",\"t5\"]"));
}

// Whatever else was said of the file before.
TEST(ConcludeTest, GroupsLossesBehindAnotherProblemOfTheFile) {
  Status status = Error(ErrorKind::kTruncated, "too short").File("a");
  for (const char* tensor : {"t1", "t2"}) status.Add(LostFile("a", tensor));
  status.Add(Error(ErrorKind::kMissingFile, "unreachable").File("a").Tensor("u1"));
  status.Add(LostFile("a", "t3"));
  status.Add(Error(ErrorKind::kMissingFile, "unreachable").File("a").Tensor("u2"));
  Capture capture;
  (void)Conclude(status, false, capture.streams);
  EXPECT_EQ(capture.err.text(),
            "error: truncated: too short: a\n"
            "error: missing_file: gone: a: t1, t2, t3\n"
            "error: missing_file: unreachable: a: u1, u2\n");
}

TEST(ConcludeTest, UsageErrorsHaveTheirOwnExitCode) {
  Capture capture;
  const Status usage = Error(ErrorKind::kUsage, "no");
  EXPECT_EQ(Conclude(usage, false, capture.streams), ExitCode::kUsage);
}

TEST(ConcludeTest, KeepsWhatTheCommandFound) {
  Capture capture;
  EXPECT_EQ(Conclude(ExitCode::kDifferent, true, capture.streams), ExitCode::kDifferent);
  EXPECT_THAT(capture.out.text(), IsEmpty());
}

TEST(ConcludeTest, AnswerThatCannotBeWrittenIsAFailure) {
  class FullDisk final : public TextOutput {
   public:
    void Write(std::string_view /*text*/) override {}
    Status Flush() override { return Error(ErrorKind::kNoSpace, "write"); }
  };
  FullDisk out;
  StringOutput err;
  Streams streams{.out = out, .err = err};
  EXPECT_EQ(Conclude(ExitCode::kDone, false, streams), ExitCode::kFailed);
  EXPECT_THAT(err.text(), HasSubstr("no_space"));
}

TEST(PrintProblemTest, EscapesWhatCouldSteerATerminal) {
  Capture capture;
  PrintStatus(Error(ErrorKind::kBadItem, "odd").Tensor("\x1b[2J"), capture.streams);
  EXPECT_THAT(capture.err.text(), HasSubstr("\\x1b[2J"));
}

TEST(PrintProblemTest, ColoursOnlyWhereItMay) {
  Capture capture;
  capture.streams.err_has_colour = true;
  PrintStatus(Error(ErrorKind::kBadItem, "odd"), capture.streams);
  EXPECT_THAT(capture.err.text(), StartsWith("\x1b["));
}

}  // namespace
}  // namespace ckpt::cli
