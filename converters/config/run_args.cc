#include "converters/config/run_args.h"

#include <string>
#include <utility>

#include "converters/config/own_args.h"
#include "converters/config/run_settings.h"

namespace ckpt {
namespace {

using layout::Configuration;
using layout::Value;

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
  CKPT_ASSIGN_OR_RETURN(const TranslationTable table,
                        LoadBuiltInTranslation("megatron_to_run.table"));
  Result<NamedValues> translated = table.Invert(settings);
  if (!translated.ok())
    return std::move(translated).status().While("translating settings into args");
  AddMissing(CounterArgs(counters), args);
  AddMissing(*std::move(translated), args);

  CKPT_ASSIGN_OR_RETURN(const Configuration back,
                        RunSettings(Configuration(args.begin(), args.end())));
  const auto is_said = [&](const std::string& name, bool comes_back) {
    return table.IsOneWay(name) ? HasArg(args, name) : comes_back;
  };
  AddOwn(settings, back, is_said, args);
  return args;
}

}  // namespace ckpt
