#include "core/base/status.h"

#include <cerrno>
#include <set>

#include <gmock/gmock.h>

#include "core/base/result.h"
#include "tests/testing/matchers.h"

namespace ckpt {
namespace {

using testing::FailsWith;
using testing::IsOk;

TEST(Status, KeepsWhatInnerCallsSaid) {
  const Status status = Error(ErrorKind::kChecksum, "CRC differs").File("inner").While("reading");
  const Status outer = Status(status).File("outer").Tensor("w").While("verifying");
  EXPECT_EQ(outer.first().file, "inner");
  EXPECT_EQ(outer.first().tensor, "w");
  EXPECT_EQ(outer.first().context, "reading, verifying");
  EXPECT_TRUE(status.first().tensor.empty()) << "copies are deep";
}

TEST(Status, AnnotationsDoNothingOnOk) { EXPECT_THAT(OkStatus().File("f").While("w"), IsOk()); }

TEST(Status, CollectsProblemsAndKeepsTheFirstKind) {
  Status all;
  all.Add(OkStatus());
  EXPECT_THAT(all, IsOk());
  all.Add(Error(ErrorKind::kMissing, "a"));
  all.Add(Error(ErrorKind::kUnmapped, "b"));
  EXPECT_THAT(all, FailsWith(ErrorKind::kMissing));
  EXPECT_EQ(all.problems().size(), 2U);
}

TEST(Status, PrintsTheWholeCaseWithoutControlCharacters) {
  const Status status = Error(ErrorKind::kTruncated, "file is short")
                            .File("a\x1b[31m.bin")
                            .Tensor("w")
                            .Expected("8 bytes")
                            .Actual("7 bytes")
                            .Hint("fetch it again");
  EXPECT_EQ(status.ToString(),
            "truncated: file is short: a\\x1b[31m.bin: w: expected 8 bytes, found 7 bytes\n"
            "hint: fetch it again");
}

TEST(Status, EveryKindHasItsOwnName) {
  std::set<std::string_view> names;
  for (int i = 0; i <= static_cast<int>(ErrorKind::kInternal); ++i) {
    EXPECT_TRUE(names.insert(KindName(static_cast<ErrorKind>(i))).second) << i;
  }
}

TEST(ErrnoError, TellsTheSystemFromTheFile) {
  EXPECT_THAT(ErrnoError(ENOSPC, "write", "f"), FailsWith(ErrorKind::kNoSpace));
  EXPECT_THAT(ErrnoError(EDQUOT, "write", "f"), FailsWith(ErrorKind::kNoSpace));
  EXPECT_THAT(ErrnoError(ENOENT, "open", "f"), FailsWith(ErrorKind::kNotFound));
  EXPECT_THAT(ErrnoError(EIO, "read", "f"), FailsWith(ErrorKind::kIo));
  for (const int damage : {EBADMSG, EUCLEAN, ELOOP, ENOTDIR, EISDIR, ENAMETOOLONG}) {
    EXPECT_THAT(ErrnoError(damage, "open", "f"), FailsWith(ErrorKind::kIo)) << damage;
  }
  for (const int refusal : {EACCES, EAGAIN, EINTR, EMFILE, ENFILE, ENOMEM, EPERM, EROFS, ESTALE,
                            ETIMEDOUT, ENOTCONN, EHOSTDOWN, EBUSY}) {
    EXPECT_THAT(ErrnoError(refusal, "open", "f"), FailsWith(ErrorKind::kSystem)) << refusal;
  }
}

Result<int> Half(int value) {
  if (value % 2 != 0) return Error(ErrorKind::kUsage, "odd");
  return value / 2;
}

Result<int> Quarter(int value) {
  CKPT_ASSIGN_OR_RETURN(const int half, Half(value));
  return Half(half);
}

TEST(Result, CarriesAValueOrAStatus) {
  EXPECT_THAT(Quarter(8), testing::IsOkAndHolds(2));
  EXPECT_THAT(Quarter(6), FailsWith(ErrorKind::kUsage));
}

TEST(ResultDeathTest, AsksForNoValueOfAnError) { EXPECT_DEATH((void)*Half(1), "ok"); }

}  // namespace
}  // namespace ckpt
