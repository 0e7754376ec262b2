// Settings as YAML: one flat mapping of names to values.
#ifndef CKPT_TOOLS_CKPT_TRAIN_YAML_SETTINGS_H_
#define CKPT_TOOLS_CKPT_TRAIN_YAML_SETTINGS_H_

#include <string>
#include <string_view>
#include <utility>

#include "core/base/result.h"
#include "core/layout/value.h"

namespace ckpt::train {

// Scalars have the types of YAML 1.2's core schema: true, 12, 1e-4, null, and text; "quoted" is
// text. Mappings within the mapping only group settings, and their names have no meaning. So a
// setting may occur only once in the whole file.
//
// `name` (a path) appears in errors. Errors: kUsage: not YAML, more than one document, not a
// mapping, a name twice, lists with anything but scalars; kResource: too much to parse. All errors
// at once, with their lines, except for syntax errors.
Result<layout::Configuration> ParseYamlSettings(std::string_view text, std::string_view name);

// "KEY=VALUE", the value as YAML writes it: `lr=3e-4`, `window_size=[127, 0]`. Errors: kUsage.
Result<std::pair<std::string, layout::Value>> ParseAssignment(std::string_view text);

}  // namespace ckpt::train

#endif  // CKPT_TOOLS_CKPT_TRAIN_YAML_SETTINGS_H_
