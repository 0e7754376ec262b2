#include "tools/cli/usable_hints.h"

#include <CLI/CLI.hpp>
#include <gtest/gtest.h>

namespace ckpt::cli {
namespace {

TEST(WithUsableHints, KeepsThoseWhoseOptionsTheVerbHas) {
  CLI::App verb;
  int value = 0;
  verb.add_option("-t,--threads", value);
  verb.add_option("--init", value);
  const auto kept = [&](const char* hint) {
    const Status status = Error(ErrorKind::kNotFound, "no model").Hint(hint);
    return WithUsableHints(status, verb).first().hint == hint;
  };
  EXPECT_TRUE(kept("lower --threads"));
  EXPECT_TRUE(kept("give --init hf:DIR, --threads=1 or nothing -- at all"));
  EXPECT_TRUE(kept("give another file"));
  EXPECT_FALSE(kept("pass --hf-assets DIR"));
  EXPECT_FALSE(kept("lower --threads, or give --initial"));
  EXPECT_TRUE(WithUsableHints(OkStatus(), verb).ok());
}

TEST(WithUsableHints, LeavesEverythingElseOfAProblem) {
  const CLI::App verb;
  Status status = Error(ErrorKind::kNotFound, "no model").File("a").Hint("pass --model");
  status.Add(Error(ErrorKind::kUsage, "and no data").Hint("give some"));
  const Status told = WithUsableHints(status, verb);
  ASSERT_EQ(told.problems().size(), 2U);
  EXPECT_EQ(told.first().file, "a");
  EXPECT_EQ(told.problems()[1].hint, "give some");
}

}  // namespace
}  // namespace ckpt::cli
