#include "converters/config/megatron_args.h"

#include <utility>

namespace ckpt {
Result<NamedValues> MegatronArgs(const layout::Configuration& hf_config) {
  CKPT_ASSIGN_OR_RETURN(const TranslationTable table,
                        LoadBuiltInTranslation("hf_to_megatron.table"));
  Result<NamedValues> args = table.Translate(hf_config);
  if (!args.ok()) return std::move(args).status().While("translating config.json into args");
  return args;
}

Result<std::vector<Problem>> LostInMegatronArgs(const layout::Configuration& hf_config) {
  CKPT_ASSIGN_OR_RETURN(const TranslationTable table,
                        LoadBuiltInTranslation("hf_to_megatron.table"));
  return table.FindLosses(hf_config);
}

Result<layout::Configuration> ConfigFromMegatronArgs(const layout::Configuration& args) {
  CKPT_ASSIGN_OR_RETURN(const TranslationTable table,
                        LoadBuiltInTranslation("megatron_to_hf.table"));
  Result<layout::Configuration> config = table.TranslatePresent(args);
  if (!config.ok()) return std::move(config).status().While("translating args");
  return config;
}

}  // namespace ckpt
