#include "converters/config/model_settings.h"

#include <utility>

#include "converters/config/translation_table.h"
#include "converters/families/family_registry.h"

namespace ckpt {

Result<layout::Configuration> ModelSettings(const layout::Configuration& hf_config) {
  CKPT_RETURN_IF_ERROR(FindFamily(hf_config).status());
  CKPT_ASSIGN_OR_RETURN(const TranslationTable table,
                        LoadTranslationOf(hf_config, "hf_to_model.table"));
  Result<layout::Configuration> settings = table.TranslatePresent(hf_config);
  if (!settings.ok()) {
    return std::move(settings).status().While("translating config.json into model settings");
  }
  return settings;
}

}  // namespace ckpt
