// Which layout table describes a model.
#ifndef CKPT_CONVERTERS_FAMILIES_FAMILY_REGISTRY_H_
#define CKPT_CONVERTERS_FAMILIES_FAMILY_REGISTRY_H_

#include <span>
#include <string>
#include <string_view>

#include "converters/families/family_file.h"
#include "core/base/result.h"
#include "core/layout/layout_table.h"
#include "core/layout/value.h"

namespace ckpt {

// model_type of a configuration that leaves nothing to the defaults of a published class, as that
// of a training run does (megatron.family).
inline constexpr std::string_view kModelTypeOfRuns = "megatron";

// The families of the files *.family in this folder, parsed once. A layout is parsed when it is
// first asked for, because a model needs only one.
//
// Errors: kInternal (a file in the source tree is wrong; a test parses them all).
Result<std::span<const Family>> BuiltInFamilies();

// The layout of a built-in family. It lives as long as the program. Errors: kInternal.
Result<const layout::LayoutTable*> LayoutOf(const Family& family);

// The layout of the family whose `match` holds for the configuration. The table lives as long as
// the program.
//
// Errors: kUnsupported (no family matches, naming the configuration's model_type), and those of
// BuiltInFamilies.
Result<const layout::LayoutTable*> FindFamily(const layout::Configuration& config);

// What a configuration says of a model, as definitions over its keys: of its family, or of any
// model if none describes it. They live as long as the program. Errors: those of BuiltInFamilies.
Result<const layout::Definitions*> FactsOf(const layout::Configuration& config);

// Reads a configuration as the class of its family does: removes keys that only other classes read,
// and gives absent keys the defaults of the class. A null stays null. Nothing changes if no family
// matches.
//
// Errors: those of BuiltInFamilies; kBadMetadata (a key is of the wrong kind).
Status ReadAsClass(layout::Configuration& config);

// A table of the user's, `--mapping FILE`, for a model with this configuration. It may include the
// built-in files. Those that ask for facts of the model's class (`class_NAME`) get them from the
// family of the configuration, except those that the table defines itself. For a model without a
// family they are what most classes have. `name` appears in errors.
//
// Errors: those of ParseLayoutTable and BuiltInFamilies.
Result<layout::LayoutTable> LoadMapping(std::string_view text, std::string_view name,
                                        const layout::Configuration& config);

// The text of a built-in file by its name, for `include` lines. Errors: kNotFound.
Result<std::string> ReadBuiltInTable(std::string_view name);

}  // namespace ckpt

#endif  // CKPT_CONVERTERS_FAMILIES_FAMILY_REGISTRY_H_
