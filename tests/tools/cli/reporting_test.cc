#include "tools/cli/reporting.h"

#include <gmock/gmock.h>

namespace ckpt::cli {
namespace {

using ::testing::IsEmpty;

class ReportingTest : public ::testing::Test {
 protected:
  // What standard error holds after one fact and two stages of work.
  std::string Told(const CommonOptions& options) {
    Tell(options, "format", "dcp at run\n7", streams_);
    const auto progress = MakeProgress(options, streams_);
    progress->OnPhase("convert", 2048, 2);
    for (const std::string item : {"a", "b", "a"}) progress->OnDone(item, 512);
    progress->OnPhase("verify", 512, 1);
    progress->OnDone("a", 512);
    return err_.text();
  }

  StringOutput out_;
  StringOutput err_;
  Streams streams_{.out = out_, .err = err_};
};

TEST_F(ReportingTest, IsSilentUnlessAskedForOrOnATerminal) { EXPECT_THAT(Told({}), IsEmpty()); }

TEST_F(ReportingTest, OnceVerboseTellsWhatWasFoundOut) {
  EXPECT_EQ(Told({.verbosity = 1}), "info: format: dcp at run\\x0a7\n");
}

TEST_F(ReportingTest, TwiceVerboseNamesEveryItemOnceAStage) {
  EXPECT_EQ(Told({.verbosity = 2}),
            "info: format: dcp at run\\x0a7\n"
            "convert: 2.0 KiB in 2 items\nconvert: a\nconvert: b\n"
            "verify: 512 B in 1 item\nverify: a\n");
}

TEST_F(ReportingTest, QuietWins) {
  streams_.err_is_terminal = true;
  EXPECT_THAT(Told({.quiet = true, .verbosity = 2}), IsEmpty());
}

}  // namespace
}  // namespace ckpt::cli
