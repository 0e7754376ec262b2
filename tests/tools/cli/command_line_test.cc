#include "tools/cli/command_line.h"

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include <CLI/CLI.hpp>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace ckpt::cli {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

// A tool whose verb has an option of each kind. It parses once.
class SmallTool {
 public:
  SmallTool() : app_("Does things.", "ckpt-try") {
    CLI::App& run = *app_.add_subcommand("run", "Run it");
    run.add_option("SRC", source, "What");
    TakeOneOf(run.add_option("--to", word, "Of these"), {"a", "b"});
    run.add_option("--number", number, "How many")->check(CLI::Range(0, 9));
    run.add_option("--only", words, "Several");
    AddByteSize(run, "--size", size, "How large");
    AddOutputOptions(run, options_);
    CLI::App& walk = *app_.add_subcommand("walk", "Walk it");
    walk.add_option("--speed", speed, "How fast");
  }
  std::optional<ExitCode> Parse(const std::vector<std::string>& args) {
    return ParseArguments(app_, args, "", streams_);
  }

  std::string source;
  std::string word;
  int number = 0;
  std::vector<std::string> words;
  std::uint64_t size = 0;
  int speed = 0;
  StringOutput out;
  StringOutput err;

 private:
  CommonOptions options_;
  CLI::App app_;
  Streams streams_{.out = out, .err = err};
};

TEST(CommandLineTest, TakesWordsOfEveryKind) {
  SmallTool tool;
  EXPECT_EQ(tool.Parse({"run", "x", "--to=b", "--number", "3", "--only", "p", "q", "--size=1KiB"}),
            std::nullopt);
  EXPECT_EQ(tool.source, "x");
  EXPECT_EQ(tool.word, "b");
  EXPECT_EQ(tool.number, 3);
  EXPECT_THAT(tool.words, ElementsAre("p", "q"));
  EXPECT_EQ(tool.size, 1024U);
  EXPECT_THAT(tool.err.text(), IsEmpty());
}

// What a script leaves empty was meant to say something.
TEST(CommandLineTest, RefusesEveryEmptyValueByName) {
  for (const std::string name : {"--to", "--number", "--only", "--size"}) {
    for (const auto& words : {std::vector<std::string>{name, ""}, {name + "="}}) {
      SCOPED_TRACE(words.front());
      SmallTool tool;
      std::vector<std::string> args = {"run", "x"};
      args.insert(args.end(), words.begin(), words.end());
      EXPECT_EQ(tool.Parse(args), ExitCode::kUsage);
      EXPECT_THAT(tool.err.text(),
                  HasSubstr("error: usage: " + name + ": a value must not be empty\n"));
    }
  }
  EXPECT_EQ(SmallTool().Parse({"run", "x", "--only", "p", ""}), ExitCode::kUsage);
}

TEST(CommandLineTest, ListsTheValuesOfAnOption) {
  SmallTool tool;
  EXPECT_EQ(tool.Parse({"run", "x", "--to", "c"}), ExitCode::kUsage);
  EXPECT_THAT(tool.err.text(),
              HasSubstr("error: usage: unknown value of --to: expected one of a, b, found c\n"));
  SmallTool json;
  EXPECT_EQ(json.Parse({"run", "x", "--to", "c", "--json"}), ExitCode::kUsage);
  EXPECT_THAT(json.out.text(), HasSubstr(R"("expected":"one of a, b","actual":"c")"));
}

// The word is no mistake of typing.
TEST(CommandLineTest, NamesTheVerbsThatHaveAnOption) {
  SmallTool tool;
  EXPECT_EQ(tool.Parse({"walk", "--number", "3"}), ExitCode::kUsage);
  EXPECT_THAT(tool.err.text(), HasSubstr("error: usage: unknown option \"--number\"\n"
                                         "hint: it is an option of run\n"));
  EXPECT_EQ(SmallTool().Parse({"walk", "--speed", "3"}), std::nullopt);
}

// The key of a tensor can be empty.
TEST(CommandLineTest, TakesAnEmptyPositional) {
  SmallTool tool;
  tool.source = "before";
  EXPECT_EQ(tool.Parse({"run", ""}), std::nullopt);
  EXPECT_EQ(tool.source, "");
}

TEST(CommandLineTest, IsNotQuietAndVerboseAtOnce) {
  SmallTool tool;
  EXPECT_EQ(tool.Parse({"run", "x", "-q", "-v"}), ExitCode::kUsage);
  EXPECT_THAT(tool.err.text(), HasSubstr("error: usage: --quiet excludes --verbose\n"));
}

}  // namespace
}  // namespace ckpt::cli
