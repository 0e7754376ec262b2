#include "converters/config/run_args.h"

#include <algorithm>
#include <string>
#include <utility>

#include "converters/config/run_settings.h"

namespace ckpt {
namespace {

using layout::Configuration;
using layout::Value;

bool Has(const NamedValues& values, std::string_view name) {
  return std::any_of(values.begin(), values.end(),
                     [&](const auto& value) { return value.first == name; });
}

// Nothing for an absent setting and for null alike.
Value ValueOf(const Configuration& settings, const std::string& name) {
  const auto found = settings.find(name);
  return found == settings.end() ? Value() : found->second;
}

NamedValues CounterArgs(const RunCounters& counters) {
  return {{"iteration", counters.iteration},
          {"consumed_train_samples", counters.consumed_train_samples},
          {"consumed_valid_samples", 0},
          {"skipped_train_samples", 0},
          {"no_save_optim", Value()},
          {std::string(kArgsVersion), kArgsVersionNow}};
}

}  // namespace

Result<NamedValues> RunArgs(const Configuration& settings, const RunCounters& counters,
                            const NamedValues& more) {
  NamedValues args = more;
  const auto add = [&args](NamedValues values) {
    for (auto& value : values) {
      if (!Has(args, value.first)) args.push_back(std::move(value));
    }
  };
  CKPT_ASSIGN_OR_RETURN(const TranslationTable table,
                        LoadBuiltInTranslation("megatron_to_model.table"));
  Result<NamedValues> translated = table.Invert(settings);
  if (!translated.ok())
    return std::move(translated).status().While("translating settings into args");
  add(CounterArgs(counters));
  add(*std::move(translated));

  // Whatever does not come back as it was is said once more, in our own words.
  CKPT_ASSIGN_OR_RETURN(const Configuration back,
                        RunSettings(Configuration(args.begin(), args.end())));
  Configuration names = settings;
  names.insert(back.begin(), back.end());
  for (const auto& [name, unused] : names) {
    const Value value = ValueOf(settings, name);
    const bool is_said = table.IsAnew(name) ? Has(args, name) : value == ValueOf(back, name);
    if (!is_said) args.emplace_back(std::string(kOwnPrefix) + name, value);
  }
  return args;
}

}  // namespace ckpt
