#include "tools/cli/status_line.h"

#include <gtest/gtest.h>

namespace ckpt::cli {
namespace {

TEST(StatusLineTest, RewritesItsLineAndClearsItOnce) {
  StringOutput err;
  {
    StatusLine line(err);
    line.Clear();
    EXPECT_EQ(err.text(), "");
    line.Show("one");
    line.Show("two");
    line.Clear();
  }
  EXPECT_EQ(err.text(), "\r\x1b[Kone\r\x1b[Ktwo\r\x1b[K");
}

TEST(StatusLineTest, IsDueAtOnceAndThenNotForAWhile) {
  StringOutput err;
  StatusLine line(err);
  EXPECT_TRUE(line.IsDue());
  EXPECT_FALSE(line.IsDue());
}

}  // namespace
}  // namespace ckpt::cli
