// Keys that a source may have in addition to those of a layout.
#ifndef CKPT_CORE_LAYOUT_INTERNAL_IGNORE_RULES_H_
#define CKPT_CORE_LAYOUT_INTERNAL_IGNORE_RULES_H_

#include <vector>

#include "core/base/result.h"
#include "core/layout/expr.h"
#include "core/layout/layout_table.h"

namespace ckpt::layout {

// The rules for one configuration. In a pattern, `<name>` becomes the value of `name`, an integer.
// A list gives one rule for each of its elements, so an empty list gives none.
//
// Errors: kBadMetadata (`name` is neither an integer nor a list of integers, a '<' without '>'),
// and those of names.Get.
Result<std::vector<IgnoreRule>> ResolveIgnoreRules(const std::vector<IgnoreRule>& rules,
                                                   const Names& names);

}  // namespace ckpt::layout

#endif  // CKPT_CORE_LAYOUT_INTERNAL_IGNORE_RULES_H_
