#include "converters/config/megatron_args.h"

#include <algorithm>
#include <string>
#include <string_view>
#include <utility>

#include <fmt/format.h>

#include "converters/config/model_settings.h"
#include "converters/config/own_args.h"
#include "core/base/warning.h"

namespace ckpt {
namespace {

using layout::Configuration;
using layout::Value;

// What `settings` mean, with one name and value for each meaning (model_meaning.table). Settings of
// `model` that are not in the table are taken as they are.
Result<NamedValues> MeaningOf(const Configuration& settings, const Configuration& model) {
  CKPT_ASSIGN_OR_RETURN(const TranslationTable table,
                        LoadBuiltInTranslation("model_meaning.table"));
  CKPT_ASSIGN_OR_RETURN(NamedValues meaning, table.Translate(settings));
  for (const auto& [name, unused] : model) {
    if (HasArg(meaning, name)) continue;
    const auto found = settings.find(name);
    meaning.emplace_back(name, found == settings.end() ? Value() : found->second);
  }
  return meaning;
}

const Value* Find(const NamedValues& values, std::string_view name) {
  const auto found = std::find_if(values.begin(), values.end(),
                                  [&](const auto& value) { return value.first == name; });
  return found == values.end() ? nullptr : &found->second;
}

// The value as docs/guides/model-settings.md writes it.
std::string InTheGuidesWords(const Value& value) {
  if (value.is_null()) return "none";
  return value.AsText() != nullptr ? *value.AsText() : layout::FormatValue(value);
}

// Compares the meaning of `who` with the expected one, and lists each name whose values differ.
// Both meanings have the same names in the same order.
std::vector<Problem> Differences(const NamedValues& expected, std::string_view than,
                                 const NamedValues& actual, std::string_view who) {
  std::vector<Problem> differences;
  for (std::size_t i = 0; i < expected.size(); ++i) {
    const auto& [name, value] = expected[i];
    if (AreSame(value, actual[i].second)) continue;
    Problem& warning = differences.emplace_back(
        Warning(ErrorKind::kUnsupported, fmt::format("{} another {} than {}", who, name, than)));
    warning.expected = InTheGuidesWords(value);
    warning.actual = InTheGuidesWords(actual[i].second);
  }
  return differences;
}

// The trainer's settings for what Megatron computes with `args`. The trainer may not compute it.
struct MegatronModel {
  Configuration settings;
  NamedValues meaning;
  std::vector<Problem> unlike;  // where no settings tell the difference
};

Result<MegatronModel> ReadAsMegatron(const NamedValues& args, const Configuration& settings) {
  CKPT_ASSIGN_OR_RETURN(const TranslationTable table,
                        LoadBuiltInTranslation("megatron_to_model.table"));
  const Configuration said(args.begin(), args.end());
  MegatronModel model;
  CKPT_ASSIGN_OR_RETURN(model.settings, table.TranslateUnchecked(said));
  CKPT_ASSIGN_OR_RETURN(model.meaning, MeaningOf(model.settings, settings));
  if (const auto checked = table.Translate(said); !checked.ok()) {
    for (const Problem& problem : checked.status().problems()) {
      model.unlike.push_back(
          Warning(ErrorKind::kUnsupported,
                  fmt::format("Megatron computes another model: {}", problem.message)));
    }
  }
  return model;
}

// Every reason of `refusal`.
void AddRefusal(const Status& refusal, ModelArgs& args) {
  Value::List reasons;
  for (const Problem& problem : refusal.problems()) {
    reasons.emplace_back(problem.message);
    args.warnings.push_back(
        Warning(ErrorKind::kUnsupported,
                fmt::format("ckpt-train does not compute this model: {}", problem.message)));
  }
  args.values.emplace_back(kRefused, std::move(reasons));
}

// What the model of a configuration computes and no setting says, if the run did nothing of the
// kind. `beyond`: what its translation refuses.
void AddBeyondSettings(const Status& beyond, const TranslationTable& of_args, Configuration args,
                       std::vector<Problem>& differences) {
  if (beyond.ok()) return;
  // Of training alone.
  args["hidden_dropout"] = args["attention_dropout"] = 0.0;
  args.erase("moe_input_jitter_eps");
  if (!of_args.Translate(args).ok()) return;  // perhaps it did
  const auto refused = args.find(kRefused);
  const Value::List* const known = refused == args.end() ? nullptr : refused->second.AsList();
  for (const Problem& problem : beyond.problems()) {
    const bool is_known =
        known != nullptr && std::ranges::find(*known, Value(problem.message)) != known->end();
    if (is_known) continue;
    differences.push_back(Warning(
        ErrorKind::kUnsupported,
        fmt::format("config.json means another model than the run's: {}", problem.message)));
  }
}

// A setting that Megatron's arguments express is not stored again, unless the model gives it: then
// it must come back bit for bit.
void AddOwnSettings(const Configuration& settings, const NamedValues& meaning,
                    const MegatronModel& megatron, NamedValues& args) {
  const auto is_said = [&](const std::string& name, bool comes_back) {
    if (comes_back) return true;
    if (settings.contains(name)) return false;
    const Value* const here = Find(meaning, name);
    const Value* const there = Find(megatron.meaning, name);
    return here != nullptr && there != nullptr && AreSame(*here, *there);
  };
  AddOwn(settings, megatron.settings, is_said, args);
}

}  // namespace

Result<ModelArgs> MegatronArgs(const Configuration& hf_config) {
  CKPT_ASSIGN_OR_RETURN(const TranslationTable besides,
                        LoadTranslationOf(hf_config, "hf_to_megatron.table"));
  CKPT_ASSIGN_OR_RETURN(const TranslationTable to_model,
                        LoadTranslationOf(hf_config, "hf_to_model.table"));
  CKPT_ASSIGN_OR_RETURN(const TranslationTable of_model,
                        LoadBuiltInTranslation("megatron_to_model.table"));
  constexpr std::string_view kDoing = "translating config.json into args";
  Result<NamedValues> values = besides.Translate(hf_config);
  if (!values.ok()) return std::move(values).status().While(kDoing);
  const Result<Configuration> settings = to_model.TranslateUnchecked(hf_config);
  if (!settings.ok()) return Status(settings.status()).While(kDoing);
  CKPT_ASSIGN_OR_RETURN(NamedValues said, of_model.Invert(*settings));
  ModelArgs args = {.values = std::move(*values), .warnings = {}};
  AddMissing(std::move(said), args.values);

  CKPT_ASSIGN_OR_RETURN(const MegatronModel megatron, ReadAsMegatron(args.values, *settings));
  CKPT_ASSIGN_OR_RETURN(const NamedValues meaning, MeaningOf(*settings, *settings));
  args.values.emplace_back(kArgsVersion, kArgsVersionNow);
  AddOwnSettings(*settings, meaning, megatron, args.values);
  if (const auto computed = ModelSettings(hf_config); computed.ok()) {
    args.warnings = megatron.unlike;
  } else {
    AddRefusal(computed.status(), args);
  }
  for (Problem& difference :
       Differences(meaning, "the model's", megatron.meaning, "Megatron's args mean")) {
    args.warnings.push_back(std::move(difference));
  }
  return args;
}

Status CheckStoredAsOthersDo(const Configuration& args) {
  CKPT_ASSIGN_OR_RETURN(const TranslationTable table,
                        LoadBuiltInTranslation("megatron_renamed.table"));
  return table.TranslatePresent(args).status();
}

Result<std::vector<Problem>> UnpublishedIn(const Configuration& args) {
  CKPT_ASSIGN_OR_RETURN(const TranslationTable table,
                        LoadBuiltInTranslation("megatron_unpublished.table"));
  std::vector<Problem> warnings = table.TranslatePresent(args).status().problems();
  for (Problem& warning : warnings) {
    if (warning.kind != ErrorKind::kUnsupported) return Status(std::move(warnings));
    warning.severity = Severity::kWarning;
  }
  return warnings;
}

Result<std::vector<Problem>> DifferencesFromArgs(const Configuration& hf_config,
                                                 const Configuration& args) {
  CKPT_RETURN_IF_ERROR(CheckArgsVersion(args));
  CKPT_ASSIGN_OR_RETURN(const TranslationTable of_config,
                        LoadTranslationOf(hf_config, "hf_to_model.table"));
  CKPT_ASSIGN_OR_RETURN(const TranslationTable of_args,
                        LoadBuiltInTranslation("megatron_to_model.table"));
  CKPT_ASSIGN_OR_RETURN(Configuration published, of_config.TranslateUnchecked(hf_config));
  CKPT_ASSIGN_OR_RETURN(Configuration run, of_args.TranslateUnchecked(args));
  TakeOwn(args, of_args, run);
  // A tokenizer may have fewer words than the model has rows.
  for (const char* name : {"vocab_size", "padded_vocab_size"}) run[name] = published[name];
  CKPT_ASSIGN_OR_RETURN(const NamedValues expected, MeaningOf(run, published));
  CKPT_ASSIGN_OR_RETURN(const NamedValues actual, MeaningOf(published, published));
  std::vector<Problem> differences =
      Differences(expected, "the run's", actual, "config.json means");
  AddBeyondSettings(of_config.Translate(hf_config).status(), of_args, args, differences);
  return differences;
}

Result<Configuration> ShapeFromMegatronArgs(const Configuration& args) {
  CKPT_ASSIGN_OR_RETURN(const TranslationTable table,
                        LoadBuiltInTranslation("megatron_to_hf.table"));
  CKPT_ASSIGN_OR_RETURN(Configuration shape, table.TranslateUnchecked(args));
  // The table takes rows for tokens where nothing else is known.
  const auto tokens = args.find("vocab_size");
  if (tokens == args.end() || tokens->second.is_null()) shape.erase("vocab_size");
  return shape;
}

Result<Configuration> ConfigFromMegatronArgs(const Configuration& args) {
  CKPT_ASSIGN_OR_RETURN(const TranslationTable table,
                        LoadBuiltInTranslation("megatron_to_hf.table"));
  Result<Configuration> config = table.TranslatePresent(args);
  if (!config.ok()) return std::move(config).status().While("translating args");
  return config;
}

}  // namespace ckpt
