// ckpt-convert: converts a checkpoint to another format and naming. This file parses the command
// line and calls the verb.

#include <algorithm>
#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include <CLI/CLI.hpp>
#include <fmt/format.h>

#include "converters/families/known_namings.h"
#include "converters/verbs/target.h"
#include "core/base/units.h"
#include "core/exec/workers.h"
#include "formats/registry/registry.h"
#include "formats/registry/stored_run.h"
#include "tools/ckpt-convert/cmd_convert.h"
#include "tools/ckpt-convert/option_words.h"
#include "tools/ckpt-convert/verbs.h"
#include "tools/cli/command_line.h"
#include "tools/cli/error_report.h"
#include "tools/cli/run_tool.h"
#include "tools/cli/streams.h"
#include "tools/cli/version.h"

namespace ckpt::cli {
namespace {

// The words that CLI11 stores before they become a ConvertCommand.
struct Words {
  std::string source;
  std::string target;
  std::string dtype;
  std::string model_type;
  std::string mapping;
  std::string hf_assets;
  std::string compress;
  std::string from;
  std::string to;
  std::vector<std::string> rename;
  std::map<std::string, std::string> choices;  // of namings, by name
  ChosenForms forms;                           // of formats
  std::string worker;
  bool no_verify = false;
};

// The word of --from for a format that is found out.
constexpr std::string_view kAnyFormat = "auto";

// Verbs name formats of the registry only. Null: the verb does not say.
const Format* ContainerOf(const ConvertVerb& verb) {
  return verb.to.empty() ? nullptr : *FindFormat(verb.to);
}

// The formats that can be written.
std::vector<const Format*> WrittenFormats() {
  std::vector<const Format*> formats;
  for (const Format* format : Formats()) {
    if (format->plan_weights != nullptr) formats.push_back(format);
  }
  return formats;
}

// The formats that the verb may make.
std::vector<const Format*> TargetsOf(const ConvertVerb& verb) {
  if (const Format* const container = ContainerOf(verb)) return {container};
  return WrittenFormats();
}

// Whether the verb can make a target of which this is true.
bool SomeTarget(const ConvertVerb& verb, bool (*is_true)(const Format& container)) {
  return std::ranges::any_of(TargetsOf(verb),
                             [&](const Format* format) { return is_true(*format); });
}

// Whether --naming alone says what the tensors of the verb's target are called.
bool HasNoUsualNaming(const ConvertVerb& verb) {
  const Format* const container = ContainerOf(verb);
  return container == nullptr || FindNaming(container->usual_naming) == nullptr;
}

// Options for the forms of the namings that the target may have. Namings may share a choice.
void AddNamingChoices(CLI::App& app, const ConvertVerb& verb, Words& words) {
  std::map<std::string, std::vector<std::string>> values_of;
  std::map<std::string, std::string> purpose_of;
  std::vector<const NamingChoice*> asked;
  for (const Format* format : HasNoUsualNaming(verb) ? WrittenFormats() : TargetsOf(verb)) {
    const KnownNaming* const naming = FindNaming(format->usual_naming);
    if (naming == nullptr) continue;
    for (const NamingChoice& choice : naming->choices) {
      if (choice.purpose.empty()) continue;
      std::vector<std::string>& values = values_of[std::string(choice.name)];
      std::string& purpose = purpose_of[std::string(choice.name)];
      if (values.empty()) asked.push_back(&choice);
      // What is taken if nothing is asked for, in brackets, may differ from naming to naming.
      if (values.empty()) purpose = choice.purpose;
      if (purpose != choice.purpose) purpose = purpose.substr(0, purpose.find(" ["));
      for (const std::string_view value : choice.values) {
        if (std::ranges::find(values, value) == values.end()) values.emplace_back(value);
      }
    }
  }
  for (const NamingChoice* choice : asked) {
    const std::string name(choice->name);
    TakeOneOf(app.add_option(OptionOf(name), words.choices[name], purpose_of[name]),
              values_of[name]);
  }
}

// Formats may share an option.
void AddFormOption(CLI::App& app, const FormatOption& option, Words& words) {
  const auto [form, is_new] = words.forms.try_emplace(std::string(option.name));
  if (!is_new) return;
  const std::vector<std::string> values(option.values.begin(), option.values.end());
  TakeOneOf(app.add_option("--" + form->first, form->second,
                           fmt::format("{} [{}]", option.purpose, values.front())),
            values);
}

void AddValueOptions(CLI::App& app, ConvertCommand& command, Words& words) {
  app.add_option("--dtype", words.dtype, "Cast floating-point tensors [each keeps its own]")
      ->option_text("float16|bfloat16|float32|float64");
  app.add_option("--keep-fp32", command.options.keep_fp32,
                 "Float32 tensors that --dtype leaves alone [routing and decay parameters]")
      ->needs("--dtype")
      ->option_text("REGEX");
}

// How many data files, or how large.
void AddNumberOfFiles(CLI::App& app, ConvertCommand& command) {
  AddByteSize(app, "--max-shard-size", command.options.max_shard_bytes, "Largest data file")
      ->check([](const std::string& word) {
        const Result<std::uint64_t> bytes = ParseByteSize(word);
        return bytes.ok() && *bytes == 0 ? std::string("a file's size must be > 0") : std::string();
      });
  app.add_option("--files", command.options.files, "Number of data files [by size]")
      ->check(CLI::Range(1, 100000))
      ->option_text("N")
      ->excludes("--max-shard-size");
}

// Each only if some target of the verb can have it.
void AddFileOptions(CLI::App& app, const ConvertVerb& verb, ConvertCommand& command, Words& words) {
  if (SomeTarget(verb, MayHaveSeveralFiles)) AddNumberOfFiles(app, command);
  if (SomeTarget(verb, MayCompress)) {
    app.add_option("--compress", words.compress, "Compress tensors; level 1 to 19 [none, level 3]")
        ->option_text("zstd[:LEVEL]");
  }
  if (!SomeTarget(verb, MayHaveParity)) return;
  app.add_option("--parity", command.options.parity_group,
                 "One more file for every N files, so that ckpt-inspect repair can rebuild one of "
                 "these [none]")
      ->check(CLI::Range(1, 1000))
      ->option_text("N");
}

void AddTargetOptions(CLI::App& app, const ConvertVerb& verb, ConvertCommand& command,
                      Words& words) {
  AddValueOptions(app, command, words);
  AddFileOptions(app, verb, command, words);
  const Format* const container = ContainerOf(verb);
  if (container == nullptr) {
    std::vector<std::string> names;
    for (const Format* format : WrittenFormats()) names.emplace_back(format->name);
    TakeOneOf(app.add_option("--to", words.to,
                             "Format of the target [the one that the source was made from]"),
              names);
  }
  if (container != nullptr && container->can_link) {
    app.add_flag("--link", command.options.link,
                 "Copy no tensor: show those of the source where they lie, by absolute paths");
  }
  if (SomeTarget(verb, MayChooseNaming)) {
    app.add_option(
           "--naming", command.options.to.naming,
           "What tensors are called: a naming of the layout table [the format's usual one, else as "
           "in the source]")
        ->option_text("NAME");
  }
  // Of the target, and of runs under a naming that it may have.
  for (const Format* format : TargetsOf(verb)) {
    for (const Format* named : Formats()) {
      const Format& form = FormOfRun(*format, named->usual_naming);
      for (const FormatOption& option : OptionsOfRun(*format, form)) {
        AddFormOption(app, option, words);
      }
    }
  }
  AddNamingChoices(app, verb, words);
}

void AddSourceOptions(CLI::App& app, const ConvertVerb& verb, ConvertCommand& command,
                      Words& words) {
  words.from = kAnyFormat;
  if (verb.from.empty() && verb.to.empty()) {
    std::vector<std::string> names = {std::string(kAnyFormat)};
    names.insert(names.end(), FormatNames().begin(), FormatNames().end());
    TakeOneOf(app.add_option("--from", words.from, "Format of the source [auto: as it shows]"),
              names);
  }
  app.add_option("--hf-assets", words.hf_assets,
                 "Directory with config.json and tokenizer, if the source has none")
      ->option_text("DIR");
  app.add_option("--model-type", words.model_type, "Family, in place of the configuration's own")
      ->option_text("NAME");
  app.add_option("--mapping", words.mapping, "A layout table to use instead of the built-in ones")
      ->option_text("FILE");
  app.add_option("--iteration", command.options.model.open.iteration,
                 "Which iteration of a Megatron root [its tracker decides]")
      ->option_text("N");
  app.add_option("--only", command.options.model.only, "Convert only these source keys")
      ->option_text("GLOB ...");
  app.add_option("--drop", command.options.model.drop, "Leave these source keys out")
      ->option_text("GLOB ...");
  app.add_option(
         "--rename", words.rename,
         "Take source keys for others; a * stands for the same text on both sides, \\*, \\= "
         "and \\\\ for these characters")
      ->option_text("OLD=NEW ...");
  if (HasNoUsualNaming(verb) || ContainerOf(verb)->run != nullptr) {
    app.add_flag("--weights-only", command.options.weights_only,
                 "Of a training run, leave out the optimizer and all else");
  }
  app.add_flag("--allow-missing", command.options.model.allow_missing,
               "Continue without tensors that the family needs and the source lacks");
}

void AddRunOptions(CLI::App& app, ConvertCommand& command, Words& words) {
  CLI::Option* const plan =
      app.add_flag("--plan", command.plan_only, "Print the plan and touch nothing");
  app.add_flag("--overwrite", command.options.overwrite, "Replace an existing target");
  CLI::Option* const resume =
      app.add_flag("--resume", command.options.resume, "Resume where an interrupted run stopped");
  CLI::Option* const worker =
      app.add_option("--worker", words.worker,
                     "Write part I of N of the tensors, from 0, beside others that write the rest")
          ->option_text("I/N")
          ->excludes(plan)
          ->excludes(resume);
  app.add_flag("--finalize", command.options.finalize,
               "Check what all workers wrote, and publish it")
      ->excludes(plan)
      ->excludes(resume)
      ->excludes(worker);
  app.add_flag("--no-verify", words.no_verify,
               "Do not compare the source with its manifest, nor read the result back");
  AddReadingOptions(app, command.common);
  AddOutputOptions(app, command.common);
}

// What was asked for of the target's form, and what else its naming is given. Errors: kUsage (the
// target has no such form).
Status CompleteForm(const Words& words, Target& to) {
  to.forms = words.forms;
  std::erase_if(to.forms, [](const auto& form) { return form.second.empty(); });
  std::string named;
  std::vector<FormatOption> options;
  if (to.container != nullptr) {
    to.container = FormatNamed(*to.container, to.naming);
    named = to.NamingInUse();
    options = to.Options();
  }
  CKPT_RETURN_IF_ERROR(CheckForms(named, options, to.forms));
  const KnownNaming* const naming = FindNaming(named);
  std::set<std::string_view> known;
  if (naming != nullptr) {
    for (const NamingChoice& choice : naming->choices) {
      known.insert(choice.name);
      const auto asked = words.choices.find(std::string(choice.name));
      const bool is_asked = asked != words.choices.end() && !asked->second.empty();
      const std::string value = is_asked ? asked->second : std::string(choice.preset);
      if (!value.empty()) to.choices[std::string(choice.name)] = value;
      if (is_asked) to.asked.emplace(choice.name);
    }
  }
  for (const auto& [name, value] : words.choices) {
    if (value.empty() || known.contains(name)) continue;
    if (naming == nullptr && !named.empty()) {  // of a mapping of the user's
      to.choices[name] = value;
      to.asked.insert(name);
      continue;
    }
    return Error(ErrorKind::kUsage, "the target's names have no such form")
        .Actual(OptionOf(name))
        .Hint("ckpt-convert --to and --naming say what the target is");
  }
  return OkStatus();
}

// Errors: kUsage.
Status Complete(const ConvertVerb& verb, const Words& words, ConvertCommand& command) {
  ConvertOptions& options = command.options;
  options.source = words.source;
  options.target = words.target;
  options.model.naming = verb.from;
  if (words.from != kAnyFormat) options.model.open.format = words.from;
  options.to.container = ContainerOf(verb);
  if (!words.to.empty()) {
    CKPT_ASSIGN_OR_RETURN(options.to.container, FindFormat(words.to));
  }
  CKPT_RETURN_IF_ERROR(CompleteForm(words, options.to));
  options.verify = !words.no_verify;
  if (!words.worker.empty()) {
    Result<WorkerId> worker = ParseWorkerId(words.worker);
    if (!worker.ok()) return std::move(worker).status().While("reading --worker");
    options.worker = *worker;
  }
  // For a source of another kind: the verb that makes the same of it, else any.
  for (const bool same : {true, false}) {
    for (const ConvertVerb& other : kConvertVerbs) {
      if (other.from.empty() || (other.to == verb.to) != same) continue;
      options.model.verbs.emplace(other.from, other.name);
    }
  }
  options.model.assets = words.hf_assets;
  options.model.model_type = words.model_type;
  options.model.mapping = words.mapping;
  if (!words.dtype.empty()) {
    CKPT_ASSIGN_OR_RETURN(options.dtype, ParseDtypeWord(words.dtype));
  }
  if (!words.compress.empty()) {
    CKPT_ASSIGN_OR_RETURN(options.zstd_level, ParseCompression(words.compress));
  }
  CKPT_ASSIGN_OR_RETURN(options.model.rename, ParseRename(words.rename));
  return OkStatus();
}

ExitCode Main(const std::vector<std::string>& args, Streams& streams) {
  CLI::App app("Convert checkpoints of large models between formats, without a GPU.",
               "ckpt-convert");
  app.set_version_flag("--version", VersionText("ckpt-convert"));
  app.require_subcommand(1);

  struct Parsed {
    ConvertCommand command;
    Words words;
    CLI::App* app = nullptr;
  };
  std::vector<Parsed> parsed(kConvertVerbs.size());
  for (std::size_t v = 0; v < kConvertVerbs.size(); ++v) {
    const ConvertVerb& verb = kConvertVerbs[v];
    Parsed& p = parsed[v];
    p.app = app.add_subcommand(std::string(verb.name), std::string(verb.purpose));
    p.app->add_option("SRC", p.words.source, "The checkpoint to convert")->required();
    const Format* const container = ContainerOf(verb);
    std::string_view made = "The directory to create";
    if (container == nullptr) made = "The file or directory to create";
    if (container != nullptr && container->is_one_file) made = "The file to create";
    p.app->add_option("DST", p.words.target, std::string(made))->required();
    AddTargetOptions(*p.app, verb, p.command, p.words);
    AddSourceOptions(*p.app, verb, p.command, p.words);
    AddRunOptions(*p.app, p.command, p.words);
    const std::vector<std::string> examples(verb.examples.begin(), verb.examples.end());
    AddExamples(*p.app, examples);
  }
  if (const auto ended = ParseArguments(app, args, "", streams)) return *ended;
  for (std::size_t v = 0; v < kConvertVerbs.size(); ++v) {
    Parsed& p = parsed[v];
    if (!p.app->parsed()) continue;
    if (const Status status = Complete(kConvertVerbs[v], p.words, p.command); !status.ok()) {
      return Conclude(status, p.command.common.json, streams);
    }
    return Conclude(RunConvert(p.command, streams), p.command.common.json, streams);
  }
  return ExitCode::kUsage;
}

}  // namespace
}  // namespace ckpt::cli

int main(int argc, char** argv) {
  ckpt::cli::Streams streams = ckpt::cli::ProcessStreams();
  return static_cast<int>(ckpt::cli::RunTool(ckpt::cli::Main, {argv + 1, argv + argc}, streams));
}
