// Parsing of a tool's command line on top of CLI11: what all tools share.
#ifndef CKPT_TOOLS_CLI_COMMAND_LINE_H_
#define CKPT_TOOLS_CLI_COMMAND_LINE_H_

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "core/base/units.h"
#include "tools/cli/exit_code.h"
#include "tools/cli/streams.h"

namespace CLI {
class App;
}

namespace ckpt::cli {

// Options that mean the same in every verb of every tool.
struct CommonOptions {
  bool json = false;                   // standard output holds exactly one JSON document
  bool quiet = false;                  // errors only
  int verbosity = 0;                   // 1: what was found out and decided; 2: every tensor, too
  std::optional<bool> progress = {};   // nothing: only if standard error is a terminal
  std::uint64_t memory_budget = kGiB;  // bytes of tensor data in memory at a time
  int threads = 0;                     // 0: one a core
};

// -q, -v and --json.
void AddOutputOptions(CLI::App& app, CommonOptions& options);
// --memory-budget, --threads, --progress and --no-progress, for verbs that read tensors.
void AddReadingOptions(CLI::App& app, CommonOptions& options);
// For CLI::Option::check: "" is no pattern, and no way to say "all".
std::string RefuseEmpty(const std::string& word);
// An option that takes "64MiB", "1GB" or plain bytes.
void AddByteSize(CLI::App& app, const std::string& names, std::uint64_t& value,
                 const std::string& help);
// Examples for the foot of a help page, one command a line.
void AddExamples(CLI::App& app, std::span<const std::string> commands);

// Parses `args` (without the program's name). Returns nothing if a verb is to run; else help or
// version were printed, or a usage error: one line that names the nearest valid word, and the usage
// line.
//
// Every tool also prints what is installed beside it, for the build: `--print-completion SHELL` (bash,
// zsh, fish) and `--print-man-page`.
//
// `default_verb`, if any, is put in front when no argument is a verb.
std::optional<ExitCode> ParseArguments(CLI::App& app, std::vector<std::string> args,
                                       const std::string& default_verb, Streams& streams);

}  // namespace ckpt::cli

#endif  // CKPT_TOOLS_CLI_COMMAND_LINE_H_
