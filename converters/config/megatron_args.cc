#include "converters/config/megatron_args.h"

#include <string_view>
#include <utility>

#include "converters/config/embedded_translations.h"
#include "converters/families/family_registry.h"
#include "core/base/quote.h"

namespace ckpt {
namespace {

Result<TranslationTable> LoadTranslation(std::string_view name) {
  for (const auto& [file, text] : EmbeddedTranslations()) {
    if (file == name) return TranslationTable::Parse(text, file, ReadBuiltInTable);
  }
  return Error(ErrorKind::kInternal, "no such built-in table").Actual(Quote(name));
}

}  // namespace

Result<NamedValues> MegatronArgs(const layout::Configuration& hf_config) {
  CKPT_ASSIGN_OR_RETURN(const TranslationTable table, LoadTranslation("hf_to_megatron.table"));
  Result<NamedValues> args = table.Translate(hf_config);
  if (!args.ok()) return std::move(args).status().While("translating config.json into args");
  return args;
}

Result<layout::Configuration> ConfigFromMegatronArgs(const layout::Configuration& args) {
  CKPT_ASSIGN_OR_RETURN(const TranslationTable table, LoadTranslation("megatron_to_hf.table"));
  Result<NamedValues> values = table.Translate(args);
  if (!values.ok()) return std::move(values).status().While("translating args");
  layout::Configuration config;
  for (auto& [name, value] : *values) {
    if (!value.is_null()) config.emplace(name, std::move(value));
  }
  return config;
}

}  // namespace ckpt
