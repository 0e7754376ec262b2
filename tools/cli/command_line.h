// Parses a tool's command line with CLI11: the part that all tools share.
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
class Option;
}  // namespace CLI

namespace ckpt::cli {

// Options that mean the same in every verb of every tool.
struct CommonOptions {
  bool json = false;                   // standard output is JSON (JsonOutput)
  bool quiet = false;                  // errors and answers only
  int verbosity = 0;                   // 1: what was detected and decided; 2: also every tensor
  std::optional<bool> progress = {};   // nothing: only if standard error is a terminal
  std::uint64_t memory_budget = kGiB;  // bytes of tensor data in memory at a time
  int threads = 0;                     // 0: one per core
};

// What a verb prints with --json.
enum class JsonOutput : std::uint8_t {
  kDocument,  // exactly one document
  kLines,     // a document a line, as things happen
};

// -q, -v and --json.
void AddOutputOptions(CLI::App& app, CommonOptions& options,
                      JsonOutput json = JsonOutput::kDocument);
// --memory-budget, --threads, --progress and --no-progress, for verbs that read tensors.
void AddReadingOptions(CLI::App& app, CommonOptions& options);
// An option that takes "64MiB", "1GB" or plain bytes.
CLI::Option* AddByteSize(CLI::App& app, const std::string& names, std::uint64_t& value,
                         const std::string& help);
// Makes `option` take one of `values` alone, which the help and the error list.
CLI::Option* TakeOneOf(CLI::Option* option, const std::vector<std::string>& values);
// Examples at the end of a help page, one command per line.
void AddExamples(CLI::App& app, std::span<const std::string> commands);

// Parses `args` (without the program's name). Returns nothing if a verb is to run. Otherwise it has
// printed help, the version, or a usage error: one line with the nearest valid word, and the usage
// line.
//
// Refuses an option's value that is empty, whatever the option is for.
//
// For the build, every tool also prints the files that are installed with it: `--print-completion
// SHELL` (bash, zsh, fish) and `--print-man-page`.
//
// `default_verb`, if any, is put in front if no argument is a verb.
std::optional<ExitCode> ParseArguments(CLI::App& app, std::vector<std::string> args,
                                       const std::string& default_verb, Streams& streams);

}  // namespace ckpt::cli

#endif  // CKPT_TOOLS_CLI_COMMAND_LINE_H_
