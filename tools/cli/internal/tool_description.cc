#include "tools/cli/internal/tool_description.h"

#include <string_view>

#include <CLI/CLI.hpp>

namespace ckpt::cli {
namespace {

constexpr std::string_view kSpace = " \n";

std::string Trimmed(std::string_view text) {
  const std::size_t begin = text.find_first_not_of(kSpace);
  if (begin == std::string_view::npos) return {};
  return std::string(text.substr(begin, text.find_last_not_of(kSpace) - begin + 1));
}

std::vector<std::string> Split(std::string_view text, char separator) {
  std::vector<std::string> parts;
  while (true) {
    const std::size_t end = text.find(separator);
    parts.emplace_back(text.substr(0, end));
    if (end == std::string_view::npos) return parts;
    text.remove_prefix(end + 1);
  }
}

OptionDescription DescribeOption(const CLI::Option& option) {
  OptionDescription described;
  for (const std::string& name : option.get_snames()) described.names.push_back("-" + name);
  for (const std::string& name : option.get_lnames()) described.names.push_back("--" + name);
  described.purpose = option.get_description();
  if (option.get_items_expected_max() == 0) return described;
  described.value = Trimmed(option.get_option_text());
  described.choices = ChoicesOf(option);
  if (!described.choices.empty()) {
    described.takes = Takes::kChoice;
  } else if (described.value == "FILE") {
    described.takes = Takes::kFile;
  } else if (described.value == "DIR") {
    described.takes = Takes::kDirectory;
  } else {
    described.takes = Takes::kWord;
  }
  return described;
}

std::vector<OptionDescription> DescribeOptions(const CLI::App& app) {
  std::vector<OptionDescription> options;
  for (const CLI::Option* option : app.get_options()) {
    if (!option->get_positional()) options.push_back(DescribeOption(*option));
  }
  return options;
}

VerbDescription DescribeVerb(const CLI::App& app) {
  VerbDescription verb;
  verb.name = app.get_name();
  verb.purpose = app.get_description();
  for (const CLI::Option* option : app.get_options()) {
    if (option->get_positional()) verb.positionals.push_back(option->get_name(true));
  }
  verb.options = DescribeOptions(app);
  // The first line of the footer is its title; see AddExamples.
  for (const std::string& line : Split(app.get_footer(), '\n')) {
    if (line.starts_with(' ')) verb.examples.push_back(Trimmed(line));
  }
  return verb;
}

}  // namespace

std::vector<std::string> ChoicesOf(const CLI::Option& option) {
  const std::string value = Trimmed(option.get_option_text());
  return value.find('|') == std::string::npos ? std::vector<std::string>() : Split(value, '|');
}

ToolDescription DescribeTool(const CLI::App& app, const std::string& default_verb) {
  ToolDescription tool;
  tool.name = app.get_name();
  tool.purpose = app.get_description();
  tool.version = CKPT_VERSION;
  tool.default_verb = default_verb;
  tool.options = DescribeOptions(app);
  for (const CLI::App* verb : app.get_subcommands([](const CLI::App*) { return true; })) {
    tool.verbs.push_back(DescribeVerb(*verb));
  }
  return tool;
}

}  // namespace ckpt::cli
