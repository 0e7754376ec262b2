#include "tools/cli/internal/progress_bar.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace ckpt::cli {
namespace {

using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

TEST(FormatProgressTest, GivesShareRateAndTimeLeft) {
  const ProgressState state{
      .done_bytes = 1 << 30, .total_bytes = 4ULL << 30, .seconds = 2, .item = "a.b"};
  EXPECT_EQ(FormatProgress("verify", state, 79),
            "verify   25%  1.0 GiB of 4.0 GiB  512.0 MiB/s  eta 6 s  a.b");
}

TEST(FormatProgressTest, StaysOnOneLine) {
  const ProgressState state{
      .done_bytes = 1, .total_bytes = 2, .seconds = 1, .item = std::string(200, 'x')};
  EXPECT_EQ(FormatProgress("verify", state, 40).size(), 40U);
}

TEST(ProgressBarTest, ClearsItsLineAtTheEnd) {
  StringOutput err;
  {
    ProgressBar bar(err);
    bar.OnPhase("digest", 10, 1);
    bar.OnDone("w", 5);
  }
  EXPECT_THAT(err.text(), HasSubstr("digest   50%"));
  EXPECT_THAT(err.text(), EndsWith("\r\x1b[K"));
}

// A conversion whose bar stands at 100 % for an hour is one that nobody sees verifying.
TEST(ProgressBarTest, NamesEachPhaseFromItsStart) {
  StringOutput err;
  ProgressBar bar(err);
  bar.OnPhase("convert", 10, 1);
  bar.OnDone("w", 10);
  bar.OnPhase("verify", 20, 1);
  EXPECT_THAT(err.text(), HasSubstr("convert  100%"));
  EXPECT_THAT(err.text(), HasSubstr("verify    0%  0 B of 20 B"));
}

TEST(ProgressBarTest, DrawsOnceForManySmallSteps) {
  StringOutput err;
  ProgressBar bar(err);
  bar.OnPhase("digest", 1000, 1000);
  for (int i = 0; i < 1000; ++i) bar.OnDone("w", 1);
  EXPECT_LT(err.text().size(), 1000U);
}

}  // namespace
}  // namespace ckpt::cli
