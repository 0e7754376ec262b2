// What statements of a layout table are made of: axes, logical tensors, conditions.
#ifndef CKPT_CORE_LAYOUT_INTERNAL_TABLE_TERMS_H_
#define CKPT_CORE_LAYOUT_INTERNAL_TABLE_TERMS_H_

#include <algorithm>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/base/result.h"
#include "core/layout/expr.h"
#include "core/layout/layout_table.h"

namespace ckpt::layout {

// Errors: kBadMetadata (the table has no dim of this name).
Status CheckAxis(const LayoutTable& table, std::string_view axis);

[[nodiscard]] std::optional<LogicalId> FindLogical(const LayoutTable& table, std::string_view name);
// Errors: kBadMetadata (there is none of this name).
Result<LogicalId> NeedLogical(const LayoutTable& table, std::string_view name);

// Cuts " when EXPR" off the end of `text`. Errors: those of Expr::Parse.
Status TakeCondition(std::string_view& text, std::optional<Expr>& when);

[[nodiscard]] inline bool Contains(const std::vector<std::string>& names, std::string_view name) {
  return std::find(names.begin(), names.end(), name) != names.end();
}

}  // namespace ckpt::layout

#endif  // CKPT_CORE_LAYOUT_INTERNAL_TABLE_TERMS_H_
