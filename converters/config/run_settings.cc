#include "converters/config/run_settings.h"

#include <utility>

#include "converters/config/own_args.h"
#include "converters/config/translation_table.h"

namespace ckpt {
namespace {

using layout::Configuration;

Result<Configuration> TranslateArgs(const Configuration& args, std::string_view table_name) {
  CKPT_ASSIGN_OR_RETURN(const TranslationTable table, LoadBuiltInTranslation(table_name));
  CKPT_ASSIGN_OR_RETURN(const bool are_ours, AreOurs(args));
  // A run of ours computes what it stored, even if Megatron's arguments cannot express it.
  Result<Configuration> settings =
      are_ours ? table.TranslateUnchecked(args) : table.TranslatePresent(args);
  if (!settings.ok()) return std::move(settings).status().While("translating args into settings");
  TakeOwn(args, table, *settings);
  return settings;
}

}  // namespace

Result<Configuration> RunSettings(const Configuration& args) {
  return TranslateArgs(args, "megatron_to_run.table");
}

Result<Configuration> StoredModelSettings(const Configuration& args) {
  return TranslateArgs(args, "megatron_to_model.table");
}

}  // namespace ckpt
