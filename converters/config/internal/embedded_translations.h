// The translation tables of this folder, embedded at build.
#ifndef CKPT_CONVERTERS_CONFIG_INTERNAL_EMBEDDED_TRANSLATIONS_H_
#define CKPT_CONVERTERS_CONFIG_INTERNAL_EMBEDDED_TRANSLATIONS_H_

#include <span>
#include <string_view>
#include <utility>

namespace ckpt {

// File name and text of every *.table file.
[[nodiscard]] std::span<const std::pair<std::string_view, std::string_view>> EmbeddedTranslations();

}  // namespace ckpt

#endif  // CKPT_CONVERTERS_CONFIG_INTERNAL_EMBEDDED_TRANSLATIONS_H_
