#include "tools/cli/internal/man_page.h"

#include <algorithm>
#include <string_view>

#include <fmt/format.h>

namespace ckpt::cli {
namespace {

// Makes roff print the text as it is: hyphens that can be copied, no requests at the start of a
// line.
std::string Escaped(std::string_view text) {
  std::string out;
  if (text.starts_with('.') || text.starts_with('\'')) out += "\\&";
  for (const char c : text) {
    if (c == '\\') {
      out += "\\e";
    } else if (c == '-') {
      out += "\\-";
    } else {
      out += c;
    }
  }
  return out;
}

std::string UpperCase(std::string text) {
  std::transform(text.begin(), text.end(), text.begin(), [](char c) {
    return 'a' <= c && c <= 'z' ? static_cast<char>(c - 'a' + 'A') : c;
  });
  return text;
}

std::string OptionEntry(const OptionDescription& option) {
  std::string names;
  for (const std::string& name : option.names) {
    names += fmt::format("{}\\fB{}\\fR", names.empty() ? "" : ", ", Escaped(name));
  }
  if (!option.value.empty()) names += fmt::format(" \\fI{}\\fR", Escaped(option.value));
  return fmt::format(".TP\n{}\n{}\n", names, Escaped(option.purpose));
}

std::string VerbSection(const ToolDescription& tool, const VerbDescription& verb) {
  std::string section = fmt::format(".SS \\fB{}\\fR", Escaped(verb.name));
  for (const std::string& word : verb.positionals) {
    section += fmt::format(" \\fI{}\\fR", Escaped(word));
  }
  section += fmt::format(" [\\fIOPTIONS\\fR]\n{}.\n", Escaped(verb.purpose));
  if (verb.name == tool.default_verb) section += "Runs if no verb is named.\n";
  for (const OptionDescription& option : verb.options) section += OptionEntry(option);
  return section;
}

}  // namespace

std::string ManPage(const ToolDescription& tool) {
  std::string page = fmt::format(".TH {} 1 \"\" \"ckptkit {}\" \"User Commands\"\n",
                                 UpperCase(tool.name), Escaped(tool.version));
  std::string purpose = tool.purpose;
  if (purpose.ends_with('.')) purpose.pop_back();
  page += fmt::format(".SH NAME\n{} \\- {}\n", Escaped(tool.name), Escaped(purpose));
  page += fmt::format(".SH SYNOPSIS\n\\fB{}\\fR {} [\\fIOPTIONS\\fR] \\fIARGUMENT\\fR ...\n",
                      Escaped(tool.name),
                      tool.default_verb.empty() ? "\\fIVERB\\fR" : "[\\fIVERB\\fR]");
  page += ".SH OPTIONS\n";
  for (const OptionDescription& option : tool.options) page += OptionEntry(option);
  page += ".SH VERBS\n";
  for (const VerbDescription& verb : tool.verbs) page += VerbSection(tool, verb);
  page +=
      ".SH EXIT STATUS\n"
      ".TP\n0\nDone.\n"
      ".TP\n1\nChecked, and found different, missing or corrupt.\n"
      ".TP\n2\nBad usage.\n"
      ".TP\n3\nFailed: input unreadable, out of space, refused.\n"
      ".SH ENVIRONMENT\n"
      ".TP\n\\fBNO_COLOR\\fR\nIf set, no colours, even on a terminal.\n"
      ".SH EXAMPLES\n.nf\n";
  for (const VerbDescription& verb : tool.verbs) {
    for (const std::string& example : verb.examples) page += Escaped(example) + "\n";
  }
  return page + ".fi\n";
}

}  // namespace ckpt::cli
