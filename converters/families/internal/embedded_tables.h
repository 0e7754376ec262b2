// The layout tables of this folder, embedded at build.
#ifndef CKPT_CONVERTERS_FAMILIES_INTERNAL_EMBEDDED_TABLES_H_
#define CKPT_CONVERTERS_FAMILIES_INTERNAL_EMBEDDED_TABLES_H_

#include <span>
#include <string_view>
#include <utility>

namespace ckpt {

// File name and text of every *.layout file, in the order of CMakeLists.txt.
[[nodiscard]] std::span<const std::pair<std::string_view, std::string_view>> EmbeddedTables();

}  // namespace ckpt

#endif  // CKPT_CONVERTERS_FAMILIES_INTERNAL_EMBEDDED_TABLES_H_
