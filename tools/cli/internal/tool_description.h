// Describes a tool as plain values. Its completions and its man page are made from them.
#ifndef CKPT_TOOLS_CLI_INTERNAL_TOOL_DESCRIPTION_H_
#define CKPT_TOOLS_CLI_INTERNAL_TOOL_DESCRIPTION_H_

#include <cstdint>
#include <string>
#include <vector>

namespace CLI {
class App;
class Option;
}  // namespace CLI

namespace ckpt::cli {

enum class Takes : std::uint8_t { kNothing, kWord, kChoice, kFile, kDirectory };

struct OptionDescription {
  std::vector<std::string> names;  // "-q", "--quiet"
  std::string purpose;
  std::string value;  // as the help shows it: "SIZE"; empty: no value
  Takes takes = Takes::kNothing;
  std::vector<std::string> choices;  // of kChoice
};

struct VerbDescription {
  std::string name;
  std::string purpose;
  std::vector<std::string> positionals;  // "SRC"
  std::vector<OptionDescription> options;
  std::vector<std::string> examples;
};

struct ToolDescription {
  std::string name;
  std::string purpose;
  std::string version;
  std::string default_verb;                // empty: the user must name a verb
  std::vector<OptionDescription> options;  // options before any verb
  std::vector<VerbDescription> verbs;
};

// The values that the option's text lists, "a|b", as TakeOneOf writes it; empty: it lists none.
[[nodiscard]] std::vector<std::string> ChoicesOf(const CLI::Option& option);

// Reads the definitions with which the command line is parsed. A value spelled "a|b" is a choice;
// FILE and DIR are paths.
[[nodiscard]] ToolDescription DescribeTool(const CLI::App& app, const std::string& default_verb);

}  // namespace ckpt::cli

#endif  // CKPT_TOOLS_CLI_INTERNAL_TOOL_DESCRIPTION_H_
