#include "converters/config/run_settings.h"

#include <string>
#include <utility>

#include <fmt/format.h>

#include "converters/config/run_args.h"
#include "converters/config/translation_table.h"

namespace ckpt {
namespace {

using layout::Configuration;
using layout::Value;

// Whether RunArgs wrote the arguments. Errors: kUnsupported (another version of it).
Result<bool> AreOurs(const Configuration& args) {
  const auto version = args.find(kArgsVersion);
  if (version == args.end()) return false;
  if (version->second == Value(kArgsVersionNow)) return true;
  return Error(ErrorKind::kUnsupported, "a newer ckptkit stored these arguments")
      .Expected(fmt::format("{} {}", kArgsVersion, kArgsVersionNow))
      .Actual(layout::FormatValue(version->second));
}

// Settings that were kept beside what Megatron's arguments say.
void TakeOwn(const Configuration& args, const TranslationTable& table, Configuration& settings) {
  for (const auto& [name, value] : args) {
    if (!name.starts_with(kOwnPrefix)) continue;
    if (name == kArgsVersion || name == kStateDigest || name == kNextLoss) continue;
    const std::string setting = name.substr(kOwnPrefix.size());
    if (table.IsAnew(setting)) continue;
    settings.erase(setting);
    if (!value.is_null()) settings.emplace(setting, value);
  }
}

}  // namespace

Result<Configuration> RunSettings(const Configuration& args) {
  CKPT_ASSIGN_OR_RETURN(const TranslationTable table,
                        LoadBuiltInTranslation("megatron_to_model.table"));
  CKPT_ASSIGN_OR_RETURN(const bool are_ours, AreOurs(args));
  // Ours computes what it stored, even where Megatron has no words for it.
  Result<Configuration> settings =
      are_ours ? table.TranslateUnchecked(args) : table.TranslatePresent(args);
  if (!settings.ok()) return std::move(settings).status().While("translating args into settings");
  TakeOwn(args, table, *settings);
  return settings;
}

}  // namespace ckpt
