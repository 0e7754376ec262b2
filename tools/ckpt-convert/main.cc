// ckpt-convert: converts a checkpoint to another format and naming. This file parses the command
// line and calls the verb.

#include <algorithm>
#include <charconv>
#include <map>
#include <string>
#include <string_view>
#include <system_error>
#include <vector>

#include <CLI/CLI.hpp>
#include <fmt/format.h>

#include "converters/families/known_namings.h"
#include "core/codec/zstd.h"
#include "formats/registry/registry.h"
#include "tools/ckpt-convert/cmd_convert.h"
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
  std::string to;
  std::vector<std::string> rename;
  std::map<std::string, std::string> choices;
  bool no_verify = false;
};

// Verbs name formats of the registry only. Null: the verb does not say.
const Format* ContainerOf(const ConvertVerb& verb) {
  return verb.to.empty() ? nullptr : *FindFormat(verb.to);
}

// The formats that can be written.
std::vector<std::string> WrittenFormats() {
  std::vector<std::string> names;
  for (const Format* format : Formats()) {
    if (format->plan_weights != nullptr) names.emplace_back(format->name);
  }
  return names;
}

// "--expert-layout" of the name "expert_layout".
std::string OptionOf(std::string_view name) {
  std::string option = "--" + std::string(name);
  std::ranges::replace(option, '_', '-');
  return option;
}

void AddTargetOptions(CLI::App& app, const ConvertVerb& verb, ConvertCommand& command,
                      Words& words) {
  app.add_option("--dtype", words.dtype, "Cast floating-point tensors [each keeps its own]")
      ->option_text("float16|bfloat16|float32|float64");
  app.add_option("--keep-fp32", command.options.keep_fp32,
                 "Float32 tensors that --dtype leaves alone [routing and decay parameters]")
      ->check(RefuseEmpty)
      ->needs("--dtype")
      ->option_text("REGEX");
  AddByteSize(app, "--max-shard-size", command.options.max_shard_bytes, "Largest data file");
  app.add_option("--files", command.options.files, "Number of data files [by size]")
      ->check(CLI::Range(1, 100000))
      ->option_text("N")
      ->excludes("--max-shard-size");
  app.add_option("--compress", words.compress, "Compress tensors; level 1 to 19 [none, level 3]")
      ->option_text("zstd[:LEVEL]");
  app.add_option("--parity", command.options.parity_group,
                 "One more file for every N files, so that ckpt-inspect repair can rebuild one of "
                 "these [none]")
      ->check(CLI::Range(1, 1000))
      ->option_text("N");
  const Format* const container = ContainerOf(verb);
  if (container == nullptr) {
    app.add_option("--to", words.to, "Format of the target [the one that the source was made from]")
        ->check(CLI::IsMember(WrittenFormats()))
        ->option_text(fmt::format("{}", fmt::join(WrittenFormats(), "|")));
  }
  if (container != nullptr && container->can_link) {
    app.add_flag("--link", command.options.link,
                 "Copy no tensor: show those of the source where they lie, by absolute paths");
  }
  if (container == nullptr || MayChooseNaming(*container)) {
    app.add_option(
           "--naming", command.options.to.naming,
           "What tensors are called: a naming of the layout table [the format's usual one, else as "
           "in the source]")
        ->check(RefuseEmpty)
        ->option_text("NAME");
  }
  if (container != nullptr && !container->generations.empty()) {
    const auto forms = container->generations;
    const std::vector<std::string> values(forms.begin(), forms.end());
    app.add_option(OptionOf(fmt::format("{}_generation", container->name)),
                   command.options.to.generation,
                   fmt::format("Which versions of its software can read it [{}]", values.front()))
        ->check(CLI::IsMember(values))
        ->option_text(fmt::format("{}", fmt::join(values, "|")));
  }
  const KnownNaming* naming = container == nullptr ? nullptr : FindNaming(container->usual_naming);
  if (naming == nullptr) return;
  for (const NamingChoice& choice : naming->choices) {
    std::string& word = words.choices[std::string(choice.name)];
    word = choice.preset;
    if (choice.purpose.empty()) continue;
    const std::vector<std::string> values(choice.values.begin(), choice.values.end());
    app.add_option(OptionOf(choice.name), word, std::string(choice.purpose))
        ->check(CLI::IsMember(values))
        ->option_text(fmt::format("{}", fmt::join(values, "|")));
  }
}

void AddSourceOptions(CLI::App& app, const ConvertVerb& verb, ConvertCommand& command,
                      Words& words) {
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
      ->check(RefuseEmpty)
      ->option_text("GLOB ...");
  app.add_option("--drop", command.options.model.drop, "Leave these source keys out")
      ->check(RefuseEmpty)
      ->option_text("GLOB ...");
  app.add_option("--rename", words.rename, "Take a source key for another one")
      ->option_text("OLD=NEW ...");
  const Format* const container = ContainerOf(verb);
  if (container == nullptr || container->run != nullptr) {
    app.add_flag("--weights-only", command.options.weights_only,
                 "Of a training run, leave out the optimizer and all else");
  }
  app.add_flag("--allow-missing", command.options.model.allow_missing,
               "Continue without tensors that the family needs and the source lacks");
}

void AddRunOptions(CLI::App& app, ConvertCommand& command, Words& words) {
  app.add_flag("--plan", command.plan_only, "Print the plan and touch nothing");
  app.add_flag("--overwrite", command.options.overwrite, "Replace an existing target");
  app.add_flag("--resume", command.options.resume, "Resume where an interrupted run stopped");
  app.add_flag("--no-verify", words.no_verify,
               "Do not compare the source with its manifest, nor read the result back");
  AddReadingOptions(app, command.common);
  AddOutputOptions(app, command.common);
}

// "zstd" or "zstd:7". Errors: kUsage.
Result<int> ParseCompression(std::string_view word) {
  constexpr std::string_view kName = "zstd";
  int level = kDefaultZstdLevel;
  bool is_good = word.starts_with(kName);
  if (is_good && word != kName) {
    const std::string_view digits = word.substr(std::min(kName.size() + 1, word.size()));
    const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), level);
    is_good = word[kName.size()] == ':' && error == std::errc() &&
              end == digits.data() + digits.size() && level >= 1 && level <= kMaxZstdLevel;
  }
  if (is_good) return level;
  return Error(ErrorKind::kUsage, "--compress takes zstd or zstd:LEVEL")
      .Expected(fmt::format("a level from 1 to {}", kMaxZstdLevel))
      .Actual(word);
}

// Errors: kUsage.
Status Complete(const ConvertVerb& verb, const Words& words, ConvertCommand& command) {
  ConvertOptions& options = command.options;
  options.source = words.source;
  options.target = words.target;
  options.model.naming = verb.from;
  options.to.container = ContainerOf(verb);
  if (!words.to.empty()) {
    CKPT_ASSIGN_OR_RETURN(options.to.container, FindFormat(words.to));
  }
  options.verify = !words.no_verify;
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
  for (const auto& [name, value] : words.choices) {
    if (!value.empty()) options.to.choices[name] = value;
  }
  if (!words.dtype.empty()) {
    const std::map<std::string, std::string> short_names = {
        {"fp16", "float16"}, {"bf16", "bfloat16"}, {"fp32", "float32"}, {"fp64", "float64"}};
    const auto known = short_names.find(words.dtype);
    options.dtype = ParseDType(known == short_names.end() ? words.dtype : known->second);
    if (!options.dtype) {
      return Error(ErrorKind::kUsage, "unknown element type")
          .Actual(words.dtype)
          .Expected("float16, bfloat16, float32 or float64");
    }
  }
  if (!words.compress.empty()) {
    CKPT_ASSIGN_OR_RETURN(options.zstd_level, ParseCompression(words.compress));
  }
  for (const std::string& pair : words.rename) {
    const std::size_t equals = pair.find('=');
    if (equals == std::string::npos) {
      return Error(ErrorKind::kUsage, "--rename takes OLD=NEW").Actual(pair);
    }
    options.model.rename[pair.substr(0, equals)] = pair.substr(equals + 1);
  }
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
    const bool is_file = container != nullptr && container->is_one_file;
    p.app
        ->add_option("DST", p.words.target,
                     is_file ? "The file to create" : "The directory to create")
        ->required();
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
