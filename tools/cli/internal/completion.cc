#include "tools/cli/internal/completion.h"

#include <array>

#include <fmt/format.h>

namespace ckpt::cli {
namespace {

std::string FunctionName(const ToolDescription& tool) {
  std::string name = "_" + tool.name;
  for (char& c : name) {
    if (c == '-') c = '_';
  }
  return name;
}

// Quotes text for any of the three shells. Characters in `specials` also get a backslash.
std::string Quoted(std::string_view text, std::string_view specials = "") {
  std::string out = "'";
  for (const char c : text) {
    if (c == '\'') {
      out += "'\\''";
      continue;
    }
    if (specials.find(c) != std::string_view::npos) out += '\\';
    out += c;
  }
  return out + "'";
}

std::vector<std::string> VerbNames(const ToolDescription& tool) {
  std::vector<std::string> names;
  for (const VerbDescription& verb : tool.verbs) names.push_back(verb.name);
  return names;
}

std::vector<std::string> OptionNames(const std::vector<OptionDescription>& options) {
  std::vector<std::string> names;
  for (const OptionDescription& option : options) {
    names.insert(names.end(), option.names.begin(), option.names.end());
  }
  return names;
}

// Completes the value of an option.
std::string BashValue(const OptionDescription& option) {
  switch (option.takes) {
    case Takes::kChoice:
      return fmt::format("COMPREPLY=($(compgen -W '{}' -- \"$cur\"))",
                         fmt::join(option.choices, " "));
    case Takes::kFile:
      return "compopt -o filenames; mapfile -t COMPREPLY < <(compgen -f -- \"$cur\")";
    case Takes::kDirectory:
      return "compopt -o filenames; mapfile -t COMPREPLY < <(compgen -d -- \"$cur\")";
    case Takes::kWord:
    case Takes::kNothing:
      break;
  }
  return ":";
}

std::string BashScript(const ToolDescription& tool) {
  std::string values;
  std::string words;
  for (const VerbDescription& verb : tool.verbs) {
    for (const OptionDescription& option : verb.options) {
      if (option.takes == Takes::kNothing) continue;
      std::vector<std::string> patterns;
      for (const std::string& name : option.names) patterns.push_back(verb.name + ":" + name);
      values += fmt::format("    {}) {}; return ;;\n", fmt::join(patterns, "|"), BashValue(option));
    }
    words += fmt::format("    {}) words='{}' ;;\n", verb.name,
                         fmt::join(OptionNames(verb.options), " "));
  }
  const std::vector<std::string> verbs = VerbNames(tool);
  return fmt::format(R"(# bash completion for {tool}
{function}() {{
  local cur=${{COMP_WORDS[COMP_CWORD]}} prev=${{COMP_WORDS[COMP_CWORD-1]}}
  local verb={default_verb} named= words i
  COMPREPLY=()
  # --option=value comes as three words.
  if [[ $cur == = ]]; then cur=; elif [[ $prev == = ]]; then prev=${{COMP_WORDS[COMP_CWORD-2]}}; fi
  for ((i = 1; i < COMP_CWORD; ++i)); do
    case ${{COMP_WORDS[i]}} in
      {verbs_pattern}) verb=${{COMP_WORDS[i]}} named=1; break ;;
    esac
  done
  case $verb:$prev in
{values}  esac
  case $verb in
{words}    *) words='{tool_options}' ;;
  esac
  if [[ $cur == -* ]]; then
    COMPREPLY=($(compgen -W "$words" -- "$cur"))
    return
  fi
  if [[ -n $verb ]]; then
    compopt -o filenames
    mapfile -t COMPREPLY < <(compgen -f -- "$cur")
  fi
  if [[ -z $named ]]; then COMPREPLY+=($(compgen -W '{verbs}' -- "$cur")); fi
}}
complete -F {function} {tool}
)",
                     fmt::arg("tool", tool.name), fmt::arg("function", FunctionName(tool)),
                     fmt::arg("default_verb", tool.default_verb), fmt::arg("values", values),
                     fmt::arg("words", words), fmt::arg("verbs", fmt::join(verbs, " ")),
                     fmt::arg("verbs_pattern", fmt::join(verbs, "|")),
                     fmt::arg("tool_options", fmt::join(OptionNames(tool.options), " ")));
}

// One specification for zsh's _arguments.
std::string ZshOption(const OptionDescription& option) {
  std::string value;
  switch (option.takes) {
    case Takes::kNothing:
      break;
    case Takes::kWord:
      value = ": :";
      break;
    case Takes::kChoice:
      value = fmt::format(": :({})", fmt::join(option.choices, " "));
      break;
    case Takes::kFile:
      value = ": :_files";
      break;
    case Takes::kDirectory:
      value = ": :_files -/";
      break;
  }
  std::string specs;
  for (const std::string& name : option.names) {
    specs += fmt::format(" \\\n        {}{}", Quoted(name + "[" + option.purpose, "]"),
                         Quoted("]" + value));
  }
  return specs;
}

std::string ZshScript(const ToolDescription& tool) {
  std::string verbs;
  std::string cases;
  for (const VerbDescription& verb : tool.verbs) {
    verbs += fmt::format("    {}\n", Quoted(verb.name + ":" + verb.purpose));
    std::string options;
    for (const OptionDescription& option : verb.options) options += ZshOption(option);
    cases += fmt::format("    {})\n      _arguments -S{} \\\n        '*: :_files'\n      ;;\n",
                         verb.name, options);
  }
  return fmt::format(R"(#compdef {tool}
{function}() {{
  local -a verbs=(
{verbs}  )
  if (( CURRENT == 2 )); then
    _describe verb verbs{paths}
    return
  fi
  shift words
  (( CURRENT-- ))
  case $words[1] in
{cases}    *) _files ;;
  esac
}}
{function} "$@"
)",
                     fmt::arg("tool", tool.name), fmt::arg("function", FunctionName(tool)),
                     fmt::arg("verbs", verbs), fmt::arg("cases", cases),
                     fmt::arg("paths", tool.default_verb.empty() ? "" : "\n    _files"));
}

std::string FishOption(const std::string& complete, const OptionDescription& option) {
  std::string line = complete;
  for (const std::string& name : option.names) {
    const bool is_long = name.starts_with("--");
    line += (is_long ? " -l " : " -s ") + name.substr(is_long ? 2 : 1);
  }
  switch (option.takes) {
    case Takes::kNothing:
      break;
    case Takes::kWord:
      line += " -x";
      break;
    case Takes::kChoice:
      line += fmt::format(" -x -a '{}'", fmt::join(option.choices, " "));
      break;
    case Takes::kFile:
      line += " -r -F";
      break;
    case Takes::kDirectory:
      line += " -x -a '(__fish_complete_directories)'";
      break;
  }
  return line + " -d " + Quoted(option.purpose, "\\") + "\n";
}

std::string FishScript(const ToolDescription& tool) {
  std::string script = "# fish completion for " + tool.name + "\n";
  for (const OptionDescription& option : tool.options) {
    script += FishOption(fmt::format("complete -c {} -n __fish_use_subcommand", tool.name), option);
  }
  for (const VerbDescription& verb : tool.verbs) {
    script += fmt::format("complete -c {} -n __fish_use_subcommand -a {} -d {}\n", tool.name,
                          verb.name, Quoted(verb.purpose, "\\"));
    const std::string seen =
        fmt::format("complete -c {} -n '__fish_seen_subcommand_from {}'", tool.name, verb.name);
    for (const OptionDescription& option : verb.options) script += FishOption(seen, option);
  }
  return script;
}

struct ShellWriter {
  std::string_view shell;
  std::string (*write)(const ToolDescription&);
};
constexpr std::array kWriters = {ShellWriter{"bash", &BashScript}, ShellWriter{"zsh", &ZshScript},
                                 ShellWriter{"fish", &FishScript}};

}  // namespace

std::optional<std::string> CompletionScript(const ToolDescription& tool, std::string_view shell) {
  for (const ShellWriter& writer : kWriters) {
    if (writer.shell == shell) return writer.write(tool);
  }
  return std::nullopt;
}

}  // namespace ckpt::cli
