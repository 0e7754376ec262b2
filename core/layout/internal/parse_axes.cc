#include "core/layout/internal/parse_axes.h"

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "core/base/text_number.h"
#include "core/layout/internal/table_error.h"
#include "core/layout/internal/table_terms.h"
#include "core/layout/words.h"

namespace ckpt::layout {
namespace {

constexpr std::string_view kCountedBy = " counted by ";

}  // namespace

Status ParseDim(std::string_view text, LayoutTable& table) {
  AxisExtent extent;
  if (const std::size_t at = text.rfind(" min "); at != std::string_view::npos) {
    if (const auto min = ParseNumber<std::int64_t>(Trim(text.substr(at + 5)))) {
      extent.min = *min;
      text = text.substr(0, at);
    }
  }
  CKPT_RETURN_IF_ERROR(table.definitions.Add(text));
  const Definition& definition = table.definitions.all().back();
  if (!definition.params.empty()) return TableError("a dim takes no parameters", text);
  extent.definition = definition.name;
  table.axes.emplace(definition.name, extent);
  return OkStatus();
}

Status ParseSplit(std::string_view text, LayoutTable& table) {
  const std::vector<std::string_view> sides = SplitTrimmed(text, '=');
  if (sides.size() != 2) return TableError("expected AXIS = PARTS", text);
  CKPT_RETURN_IF_ERROR(CheckAxis(table, sides[0]));
  for (const auto& [axis, parts] : table.splits) {
    if (Contains(parts, sides[0])) return TableError("a part is not split again", sides[0]);
  }
  std::vector<std::string> parts;
  std::string_view rest = sides[1];
  while (!rest.empty()) parts.emplace_back(TakeWord(rest));
  for (const std::string& part : parts) {
    CKPT_RETURN_IF_ERROR(CheckAxis(table, part));
    if (part == sides[0] || table.splits.contains(part)) {
      return TableError("an axis is split into unsplit axes only", part);
    }
  }
  if (parts.size() < 2 || !table.splits.emplace(sides[0], std::move(parts)).second) {
    return TableError("an axis is split once, into two parts or more", text);
  }
  return OkStatus();
}

Status ParseLogical(std::string_view text, LayoutTable& table) {
  if (!table.namings.empty()) return TableError("logical tensors stand before the namings");
  LogicalTensor logical;
  CKPT_RETURN_IF_ERROR(TakeCondition(text, logical.when));
  logical.name = TakeWord(text);
  if (!IsDottedName(logical.name) || logical.name == "zero" || FindLogical(table, logical.name)) {
    return TableError("not a name for a new logical tensor", logical.name);
  }
  if (!text.starts_with('[') || !text.ends_with(']')) {
    return TableError("expected axes in brackets", text);
  }
  std::string_view axes = Trim(text.substr(1, text.size() - 2));
  while (!axes.empty()) {
    const std::string_view axis = TakeWord(axes);
    CKPT_RETURN_IF_ERROR(CheckAxis(table, axis));
    if (Contains(logical.axes, axis)) return TableError("axis is listed twice", axis);
    logical.axes.emplace_back(axis);
  }
  if (logical.when) {
    for (const std::string& name : logical.when->names()) {
      if (!Contains(logical.axes, name)) continue;
      if (logical.when_axis && *logical.when_axis != name) {
        return TableError("a condition may read one axis only", name);
      }
      logical.when_axis = name;
    }
  }
  table.logicals.push_back(std::move(logical));
  return OkStatus();
}

Status ParseExtraNumbers(std::string_view text, LayoutTable& table) {
  const std::string_view axis = TakeWord(text);
  CKPT_RETURN_IF_ERROR(CheckAxis(table, axis));
  const std::size_t counted = text.find(kCountedBy);
  if (table.extra || table.Atoms(axis).size() > 1 || !text.starts_with("from ") ||
      counted == std::string_view::npos) {
    return TableError("expected one line AXIS from EXPR counted by KEY", text);
  }
  const std::string_view key = Trim(text.substr(counted + kCountedBy.size()));
  if (!IsIdentifier(key)) return TableError("not a key of a configuration", key);
  CKPT_ASSIGN_OR_RETURN(Expr from, Expr::Parse(Trim(text.substr(5, counted - 5))));
  table.extra.emplace(ExtraNumbers{std::string(axis), std::move(from), std::string(key)});
  return OkStatus();
}

}  // namespace ckpt::layout
