#include "tools/cli/run_tool.h"

#include <new>
#include <stdexcept>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace ckpt::cli {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::StartsWith;

class RunToolTest : public ::testing::Test {
 protected:
  StringOutput out_;
  StringOutput err_;
  Streams streams_{.out = out_, .err = err_};
};

TEST_F(RunToolTest, GivesWhatTheToolReturns) {
  const auto tool = [](const std::vector<std::string>& args, Streams& streams) {
    EXPECT_THAT(args, ElementsAre("verify", "run7"));
    streams.out.Write("damaged");
    return ExitCode::kDifferent;
  };
  EXPECT_EQ(RunTool(tool, {"verify", "run7"}, streams_), ExitCode::kDifferent);
  EXPECT_EQ(out_.text(), "damaged");
  EXPECT_THAT(err_.text(), IsEmpty());
}

TEST_F(RunToolTest, MemoryThatRunsOutIsAnErrorAndADocument) {
  const auto tool = [](const auto& /*args*/, Streams& /*streams*/) -> ExitCode {
    throw std::bad_alloc();
  };
  EXPECT_EQ(RunTool(tool, {"digest", "--json"}, streams_), ExitCode::kFailed);
  EXPECT_THAT(err_.text(), StartsWith("error: system: out of memory"));
  EXPECT_THAT(err_.text(), HasSubstr("hint: a smaller memory budget or fewer threads need less"));
  EXPECT_THAT(out_.text(), HasSubstr("\"message\":\"out of memory\""));
}

TEST_F(RunToolTest, ABugIsAnErrorAndNoDocumentUnasked) {
  const auto tool = [](const auto& /*args*/, Streams& /*streams*/) -> ExitCode {
    throw std::logic_error("unheard of");
  };
  EXPECT_EQ(RunTool(tool, {"digest"}, streams_), ExitCode::kFailed);
  EXPECT_THAT(err_.text(), StartsWith("error: internal: unheard of"));
  EXPECT_THAT(out_.text(), IsEmpty());
}

}  // namespace
}  // namespace ckpt::cli
