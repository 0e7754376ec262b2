#include "tools/cli/command_line.h"

#include <algorithm>
#include <utility>

#include <CLI/CLI.hpp>
#include <fmt/format.h>

#include "core/base/name_list.h"
#include "core/base/nearest_match.h"
#include "core/base/quote.h"
#include "tools/cli/error_report.h"
#include "tools/cli/internal/completion.h"
#include "tools/cli/internal/man_page.h"
#include "tools/cli/internal/tool_description.h"

namespace ckpt::cli {
namespace {

// How the error of TakeOneOf begins, behind the option's name; then comes the value. CLI11 hands on
// nothing but text.
constexpr std::string_view kNotAValue = "not a value: ";

std::vector<std::string> VerbsOf(const CLI::App& app) {
  std::vector<std::string> names;
  for (const CLI::App* verb : app.get_subcommands([](const CLI::App*) { return true; })) {
    names.push_back(verb->get_name());
  }
  return names;
}

std::vector<std::string> OptionsOf(const CLI::App& app) {
  std::vector<std::string> names;
  for (const CLI::Option* option : app.get_options()) {
    for (const std::string& name : option->get_lnames()) names.push_back("--" + name);
    for (const std::string& name : option->get_snames()) names.push_back("-" + name);
  }
  return names;
}

const CLI::App& SelectedVerb(const CLI::App& app) {
  const std::vector<CLI::App*> selected = app.get_subcommands();
  return selected.empty() ? app : *selected.back();
}

// Options may come before the verb: moves the first argument that is a verb to the front. Returns
// whether a verb was found.
bool MoveVerbToFront(std::vector<std::string>& args, std::span<const std::string> verbs) {
  const auto is_verb = [&](const std::string& arg) {
    return std::find(verbs.begin(), verbs.end(), arg) != verbs.end();
  };
  // Later words are candidates only if the first argument is an option: in `summary tensors` the
  // second word is a path.
  const bool starts_with_option = !args.empty() && args.front().starts_with('-');
  const auto verb = starts_with_option
                        ? std::find_if(args.begin(), args.end(), is_verb)
                        : (!args.empty() && is_verb(args.front()) ? args.begin() : args.end());
  if (verb == args.end()) return false;
  std::rotate(args.begin(), verb, verb + 1);
  return true;
}

// CLI11 takes `--name=` for an option whose value is the next argument.
void SplitOffEmptyValues(std::vector<std::string>& args) {
  for (std::size_t i = 0; i < args.size(); ++i) {
    if (!args[i].starts_with("--") || args[i].find('=') + 1 != args[i].size()) continue;
    args[i].pop_back();
    args.insert(args.begin() + static_cast<std::ptrdiff_t>(i) + 1, std::string());
  }
}

// No option has a meaning for "", and none may take it for an option that was not given: what a
// script leaves empty would then be done as if nothing had been asked for. Positionals are left
// alone: the key of a tensor can be empty.
void RefuseEmptyValues(CLI::App& app) {
  const auto refuse = [](const std::string& word) {
    return std::string(word.empty() ? "a value must not be empty" : "");
  };
  for (CLI::Option* option : app.get_options()) {
    // A transformation comes before the option's own checks.
    if (!option->get_positional()) option->transform(CLI::Validator(refuse, ""));
  }
  for (CLI::App* verb : app.get_subcommands([](const CLI::App*) { return true; })) {
    RefuseEmptyValues(*verb);
  }
}

bool AsksForHelpOrVersion(const std::vector<std::string>& args) {
  return std::any_of(args.begin(), args.end(), [](const std::string& arg) {
    return arg == "--help" || arg == "-h" || arg == "--version";
  });
}

std::string UsageLine(const CLI::App& app) {
  const CLI::App& verb = SelectedVerb(app);
  std::string line = "usage: " + app.get_name();
  line += &verb == &app ? " VERB" : " " + verb.get_name();
  line += " [OPTIONS]";
  for (const CLI::Option* option : verb.get_options()) {
    if (!option->get_positional()) continue;
    line += " " + option->get_name(true);
  }
  return line + "\n";
}

std::string DidYouMean(const std::string& word, std::span<const std::string> candidates) {
  const std::string nearest = NearestMatch(word, candidates);
  return nearest.empty() ? "" : "did you mean " + Quote(nearest) + "?";
}

Status UnknownVerb(const std::string& word, std::span<const std::string> verbs) {
  std::string hint = DidYouMean(word, verbs);
  if (hint.empty()) hint = fmt::format("the verbs are {}", fmt::join(verbs, ", "));
  return Error(ErrorKind::kUsage, "unknown verb " + Quote(word)).Hint(hint);
}

// An option that the selected verb does not have.
Status UnknownOption(const CLI::App& app, const std::string& name) {
  std::vector<std::string> verbs;  // that have it
  for (const CLI::App* verb : app.get_subcommands([](const CLI::App*) { return true; })) {
    if (verb->get_option_no_throw(name) != nullptr) verbs.push_back(verb->get_name());
  }
  return Error(ErrorKind::kUsage, "unknown option " + Quote(name))
      .Hint(verbs.empty() ? DidYouMean(name, OptionsOf(SelectedVerb(app)))
                          : "it is an option of " + NameSome(verbs));
}

// A value that TakeOneOf refused; nothing for any other error.
std::optional<Status> UnknownValue(const CLI::App& verb, std::string_view error) {
  for (const CLI::Option* option : verb.get_options()) {
    const std::string name = option->get_name();
    const std::string begin = fmt::format("{}: {}", name, kNotAValue);
    if (!error.starts_with(begin)) continue;
    return Error(ErrorKind::kUsage, "unknown value of " + name)
        .Expected(fmt::format("one of {}", fmt::join(ChoicesOf(*option), ", ")))
        .Actual(error.substr(begin.size()));
  }
  return std::nullopt;
}

Status UsageError(const CLI::App& app, const std::vector<std::string>& args, bool verb_was_given,
                  const CLI::ParseError& error) {
  const std::vector<std::string> verbs = VerbsOf(app);
  const auto word = std::find_if(args.begin(), args.end(),
                                 [](const std::string& arg) { return !arg.starts_with('-'); });
  const bool lacks_verb = &SelectedVerb(app) == &app;
  if (lacks_verb && word != args.end()) return UnknownVerb(*word, verbs);
  if (lacks_verb) {
    return Error(ErrorKind::kUsage, fmt::format("a verb is missing: {}", fmt::join(verbs, ", ")));
  }
  const std::vector<std::string> extras = app.remaining(true);
  if (extras.empty()) {
    std::optional<Status> unknown = UnknownValue(SelectedVerb(app), error.what());
    return unknown ? *std::move(unknown) : Error(ErrorKind::kUsage, error.what());
  }
  const auto option = std::find_if(extras.begin(), extras.end(),
                                   [](const std::string& arg) { return arg.starts_with('-'); });
  if (option != extras.end()) return UnknownOption(app, option->substr(0, option->find('=')));
  // Two words and no verb: the first word was meant to be a verb.
  if (!verb_was_given && word != args.end()) return UnknownVerb(*word, verbs);
  return Error(ErrorKind::kUsage, "one argument too many: " + Quote(extras.front()));
}

// The text that the build installs; nothing if `args` do not ask for one.
std::optional<std::string> InstalledText(const CLI::App& app, const std::vector<std::string>& args,
                                         const std::string& default_verb) {
  if (args.size() == 1 && args[0] == "--print-man-page") {
    return ManPage(DescribeTool(app, default_verb));
  }
  if (args.size() == 2 && args[0] == "--print-completion") {
    return CompletionScript(DescribeTool(app, default_verb), args[1]);
  }
  return std::nullopt;
}

// Of two flags that contradict each other. The help page does not say so.
void Exclude(CLI::Option& one, CLI::Option& other) {
  other.excludes(&one);
  for (CLI::Option* flag : {&one, &other}) flag->option_text(" ");
}

}  // namespace

void AddOutputOptions(CLI::App& app, CommonOptions& options, JsonOutput json) {
  app.add_flag("--json", options.json,
               json == JsonOutput::kDocument ? "Print one JSON document instead of text"
                                             : "Print JSON documents, one a line, instead of text");
  CLI::Option* const quiet =
      app.add_flag("-q,--quiet", options.quiet, "Print errors only, besides what was asked for");
  CLI::Option* const verbose =
      app.add_flag("-v,--verbose", options.verbosity,
                   "Say what was detected and decided; twice: name every tensor");
  Exclude(*quiet, *verbose);
}

void AddReadingOptions(CLI::App& app, CommonOptions& options) {
  AddByteSize(app, "--memory-budget", options.memory_budget,
              "Tensor data in memory at a time: 64MiB, 1GB or bytes [1GiB]");
  app.add_option("--threads", options.threads, "Worker threads; 0: one per core")
      ->check(CLI::Range(0, 1024))
      ->option_text("N [0]");
  const auto set_progress = [&options](bool value) {
    return [&options, value](std::int64_t) { options.progress = value; };
  };
  CLI::Option* on = app.add_flag_function("--progress", set_progress(true), "Show progress always");
  CLI::Option* off =
      app.add_flag_function("--no-progress", set_progress(false), "Show none, even on a terminal");
  Exclude(*on, *off);
}

CLI::Option* AddByteSize(CLI::App& app, const std::string& names, std::uint64_t& value,
                         const std::string& help) {
  const auto parse = [&value](const CLI::results_t& words) {
    const Result<std::uint64_t> bytes = ParseByteSize(words.front());
    if (!bytes.ok()) return false;
    value = *bytes;
    return true;
  };
  return app.add_option(names, parse, help)
      ->option_text("SIZE")
      ->check([](const std::string& word) {
        const Result<std::uint64_t> bytes = ParseByteSize(word);
        return bytes.ok() ? std::string() : bytes.status().first().message;
      });
}

CLI::Option* TakeOneOf(CLI::Option* option, const std::vector<std::string>& values) {
  const auto refuse = [values](const std::string& word) {
    const bool is_one = std::find(values.begin(), values.end(), word) != values.end();
    return is_one ? std::string() : std::string(kNotAValue) + word;
  };
  return option->check(refuse)->option_text(fmt::format("{}", fmt::join(values, "|")));
}

void AddExamples(CLI::App& app, std::span<const std::string> commands) {
  app.footer(fmt::format("Examples:\n  {}", fmt::join(commands, "\n  ")));
}

std::optional<ExitCode> ParseArguments(CLI::App& app, std::vector<std::string> args,
                                       const std::string& default_verb, Streams& streams) {
  if (const auto text = InstalledText(app, args, default_verb)) {
    streams.out.Write(*text);
    return Finish(ExitCode::kDone, streams);
  }
  RefuseEmptyValues(app);
  SplitOffEmptyValues(args);
  const std::vector<std::string> original = args;
  const bool verb_was_given = MoveVerbToFront(args, VerbsOf(app));
  if (!verb_was_given && !default_verb.empty() && !args.empty() && !AsksForHelpOrVersion(args)) {
    args.insert(args.begin(), default_verb);
  }
  if (args.empty()) args = {"--help"};
  try {
    std::reverse(args.begin(), args.end());  // CLI11 takes them in reverse order
    app.parse(std::move(args));
    return std::nullopt;
  } catch (const CLI::CallForHelp&) {
    streams.out.Write(app.help());
  } catch (const CLI::CallForVersion& version) {
    streams.out.Write(std::string(version.what()) + "\n");
  } catch (const CLI::ParseError& error) {
    const Status status = UsageError(app, original, verb_was_given, error);
    const bool is_json = std::find(original.begin(), original.end(), "--json") != original.end();
    const ExitCode code = Conclude(status, is_json, streams);
    streams.err.Write(UsageLine(app));
    (void)streams.err.Flush().ok();
    return code;
  }
  return Finish(ExitCode::kDone, streams);
}

}  // namespace ckpt::cli
