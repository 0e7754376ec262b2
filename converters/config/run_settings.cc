#include "converters/config/run_settings.h"

#include <utility>

#include "converters/config/own_args.h"
#include "converters/config/translation_table.h"

namespace ckpt {
namespace {

using layout::Configuration;

constexpr std::string_view kModelTable = "megatron_to_model.table";

Result<Configuration> TranslateArgs(const Configuration& args, std::string_view table_name,
                                    bool is_checked) {
  CKPT_ASSIGN_OR_RETURN(const TranslationTable table, LoadBuiltInTranslation(table_name));
  Result<Configuration> settings =
      is_checked ? table.TranslatePresent(args) : table.TranslateUnchecked(args);
  if (!settings.ok()) return std::move(settings).status().While("translating args into settings");
  TakeOwn(args, table, *settings);
  return settings;
}

}  // namespace

Result<Configuration> RunSettings(const Configuration& args) {
  CKPT_ASSIGN_OR_RETURN(const bool are_ours, AreOurs(args));
  // A run of ours computes what it stored, even if Megatron's arguments cannot express it.
  return TranslateArgs(args, "megatron_to_run.table", !are_ours);
}

Result<Configuration> StoredModelSettings(const Configuration& args) {
  CKPT_ASSIGN_OR_RETURN(const bool are_ours, AreOurs(args));
  return TranslateArgs(args, kModelTable, !are_ours);
}

Result<Configuration> StoredModelShape(const Configuration& args) {
  CKPT_RETURN_IF_ERROR(CheckArgsVersion(args));
  return TranslateArgs(args, kModelTable, false);
}

}  // namespace ckpt
