#include "core/layout/internal/table_terms.h"

#include <cstddef>

#include "core/layout/internal/table_error.h"
#include "core/layout/words.h"

namespace ckpt::layout {

Status CheckAxis(const LayoutTable& table, std::string_view axis) {
  if (table.axes.contains(axis)) return OkStatus();
  return TableError("axis has no dim", axis);
}

std::optional<LogicalId> FindLogical(const LayoutTable& table, std::string_view name) {
  for (LogicalId id = 0; id < table.logicals.size(); ++id) {
    if (table.logicals[id].name == name) return id;
  }
  return std::nullopt;
}

Result<LogicalId> NeedLogical(const LayoutTable& table, std::string_view name) {
  if (const std::optional<LogicalId> id = FindLogical(table, name)) return *id;
  return TableError("no such logical tensor", name);
}

Status TakeCondition(std::string_view& text, std::optional<Expr>& when) {
  const std::size_t at = text.find(" when ");
  if (at == std::string_view::npos) return OkStatus();
  CKPT_ASSIGN_OR_RETURN(when, Expr::Parse(Trim(text.substr(at + 6))));
  text = Trim(text.substr(0, at));
  return OkStatus();
}

}  // namespace ckpt::layout
