#include "tools/cli/internal/tool_description.h"

#include <CLI/CLI.hpp>
#include <gmock/gmock.h>

#include "tools/cli/command_line.h"
#include "tools/cli/internal/completion.h"
#include "tools/cli/internal/man_page.h"

namespace ckpt::cli {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;

// Two verbs with an option of each kind.
class ToolDescriptionTest : public ::testing::Test {
 protected:
  ToolDescriptionTest() : app_("Does things.", "ckpt-try") {
    CLI::App& run = *app_.add_subcommand("run", "Run it, or don't");
    run.add_option("SRC", word_, "What")->required();
    run.add_option("--dtype", word_, "Cast [none]")->option_text("float16|float32");
    run.add_option("--mapping", word_, "A table")->option_text("FILE");
    run.add_option("--assets", word_, "A folder")->option_text("DIR");
    run.add_option("--files", word_, "How many")->option_text("N");
    AddOutputOptions(run, options_);
    AddExamples(run, std::vector<std::string>{"ckpt-try run .hidden"});
    app_.add_subcommand("stop", "Stop it");
  }

  std::string word_;
  CommonOptions options_;
  CLI::App app_;
};

TEST_F(ToolDescriptionTest, SaysWhatEveryOptionTakes) {
  const ToolDescription tool = DescribeTool(app_, "run");
  ASSERT_EQ(tool.verbs.size(), 2U);
  const VerbDescription& run = tool.verbs[0];
  EXPECT_EQ(run.name, "run");
  EXPECT_THAT(run.positionals, ElementsAre("SRC"));
  EXPECT_THAT(run.examples, ElementsAre("ckpt-try run .hidden"));
  std::vector<std::pair<std::string, Takes>> takes;
  for (const OptionDescription& option : run.options) {
    takes.emplace_back(option.names.back(), option.takes);
  }
  EXPECT_THAT(
      takes,
      ElementsAre(std::pair("--help", Takes::kNothing), std::pair("--dtype", Takes::kChoice),
                  std::pair("--mapping", Takes::kFile), std::pair("--assets", Takes::kDirectory),
                  std::pair("--files", Takes::kWord), std::pair("--json", Takes::kNothing),
                  std::pair("--quiet", Takes::kNothing), std::pair("--verbose", Takes::kNothing)));
  EXPECT_THAT(run.options[1].choices, ElementsAre("float16", "float32"));
}

TEST_F(ToolDescriptionTest, EveryShellKnowsEveryWord) {
  const ToolDescription tool = DescribeTool(app_, "");
  for (const std::string shell : {"bash", "zsh", "fish"}) {
    SCOPED_TRACE(shell);
    const auto script = CompletionScript(tool, shell);
    ASSERT_TRUE(script.has_value());
    for (const VerbDescription& verb : tool.verbs) {
      EXPECT_THAT(*script, HasSubstr(verb.name));
      for (const OptionDescription& option : verb.options) {
        for (const std::string& name : option.names) {
          const std::string bare = name.substr(name.find_first_not_of('-'));
          EXPECT_THAT(*script, HasSubstr(shell == "fish" ? " " + bare : name));
        }
        for (const std::string& choice : option.choices) EXPECT_THAT(*script, HasSubstr(choice));
      }
    }
  }
  EXPECT_FALSE(CompletionScript(tool, "tcsh").has_value());
}

TEST_F(ToolDescriptionTest, ManPageEscapesWhatRoffWouldTakeForItsOwn) {
  const std::string page = ManPage(DescribeTool(app_, "run"));
  EXPECT_THAT(page, HasSubstr(".TH CKPT-TRY 1 "));
  EXPECT_THAT(page, HasSubstr("\\fB\\-\\-dtype\\fR \\fIfloat16|float32\\fR\nCast [none]\n"));
  EXPECT_THAT(page, HasSubstr("ckpt\\-try run .hidden\n"));
  EXPECT_THAT(page, HasSubstr("Runs if no verb is named.\n"));
  EXPECT_THAT(page, Not(HasSubstr("\n'")));
}

}  // namespace
}  // namespace ckpt::cli
