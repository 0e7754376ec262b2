// Which layout table describes a model.
#ifndef CKPT_CONVERTERS_FAMILIES_FAMILY_REGISTRY_H_
#define CKPT_CONVERTERS_FAMILIES_FAMILY_REGISTRY_H_

#include <span>
#include <string>
#include <string_view>

#include "core/base/result.h"
#include "core/layout/layout_table.h"
#include "core/layout/value.h"

namespace ckpt {

// The tables built in, those that only serve as includes left out. Parsed once; the same for everyone.
//
// Errors: kInternal (a table in the source tree is wrong; a test parses them all).
Result<std::span<const layout::LayoutTable>> BuiltInFamilies();

// The family whose `match` holds for the configuration. The table lives as long as the program.
//
// Errors: kUnsupported (no family matches, naming the configuration's model_type), and those of BuiltInFamilies.
Result<const layout::LayoutTable*> FindFamily(const layout::Configuration& config);

// A table of the user's, `--mapping FILE`. It may include the built-in files. `name` appears in errors.
//
// Errors: those of ParseLayoutTable.
Result<layout::LayoutTable> LoadMapping(std::string_view text, std::string_view name);

// The text of a built-in file by its name, for `include` lines. Errors: kNotFound.
Result<std::string> ReadBuiltInTable(std::string_view name);

}  // namespace ckpt

#endif  // CKPT_CONVERTERS_FAMILIES_FAMILY_REGISTRY_H_
