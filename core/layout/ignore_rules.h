// Keys that a source may have besides a layout's own.
#ifndef CKPT_CORE_LAYOUT_IGNORE_RULES_H_
#define CKPT_CORE_LAYOUT_IGNORE_RULES_H_

#include <string_view>
#include <vector>

#include "core/base/result.h"
#include "core/layout/expr.h"
#include "core/layout/layout_table.h"

namespace ckpt::layout {

// The rules under one configuration: `<name>` in a pattern becomes the value of `name`, an integer; a list makes a rule
// for each of its elements, none if it is empty.
//
// Errors: kBadMetadata (`name` is neither integer nor list of integers, an unclosed '<'), and those of names.Get.
Result<std::vector<IgnoreRule>> ResolveIgnoreRules(const std::vector<IgnoreRule>& rules,
                                                   const Names& names);

}  // namespace ckpt::layout

#endif  // CKPT_CORE_LAYOUT_IGNORE_RULES_H_
