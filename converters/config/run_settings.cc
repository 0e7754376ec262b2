#include "converters/config/run_settings.h"

#include <cstdint>
#include <string_view>
#include <utility>

#include "converters/config/own_args.h"
#include "converters/config/translation_table.h"

namespace ckpt {
namespace {

using layout::Configuration;

constexpr std::string_view kModelTable = "megatron_to_model.table";

// Whether arguments may say what the trainer does not compute.
enum class Uncomputed : std::uint8_t { kRefused, kAllowed };

// A run of ours computes what it stored, even if Megatron's arguments cannot express it.
Result<Uncomputed> UncomputedIn(const Configuration& args) {
  CKPT_ASSIGN_OR_RETURN(const bool are_ours, AreOurs(args));
  return are_ours ? Uncomputed::kAllowed : Uncomputed::kRefused;
}

Result<Configuration> TranslateArgs(const Configuration& args, std::string_view table_name,
                                    Uncomputed uncomputed) {
  CKPT_ASSIGN_OR_RETURN(const TranslationTable table, LoadBuiltInTranslation(table_name));
  Result<Configuration> settings = uncomputed == Uncomputed::kRefused
                                       ? table.TranslatePresent(args)
                                       : table.TranslateUnchecked(args);
  if (!settings.ok()) return std::move(settings).status().While("translating args into settings");
  TakeOwn(args, table, *settings);
  return settings;
}

}  // namespace

Result<Configuration> RunSettings(const Configuration& args) {
  CKPT_ASSIGN_OR_RETURN(const Uncomputed uncomputed, UncomputedIn(args));
  return TranslateArgs(args, "megatron_to_run.table", uncomputed);
}

Result<Configuration> StoredModelSettings(const Configuration& args) {
  CKPT_ASSIGN_OR_RETURN(const Uncomputed uncomputed, UncomputedIn(args));
  return TranslateArgs(args, kModelTable, uncomputed);
}

Result<Configuration> StoredModelShape(const Configuration& args) {
  CKPT_RETURN_IF_ERROR(CheckArgsVersion(args));
  return TranslateArgs(args, kModelTable, Uncomputed::kAllowed);
}

}  // namespace ckpt
