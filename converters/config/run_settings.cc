#include "converters/config/run_settings.h"

#include <utility>

#include "converters/config/translation_table.h"

namespace ckpt {

Result<layout::Configuration> RunSettings(const layout::Configuration& args) {
  CKPT_ASSIGN_OR_RETURN(const TranslationTable table,
                        LoadBuiltInTranslation("megatron_to_model.table"));
  Result<layout::Configuration> settings = table.TranslatePresent(args);
  if (!settings.ok()) return std::move(settings).status().While("translating args into settings");
  return settings;
}

}  // namespace ckpt
