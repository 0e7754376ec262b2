#include "core/layout/internal/check_rule.h"

#include <algorithm>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "core/layout/internal/table_error.h"

namespace ckpt::layout {
namespace {

bool HasAxis(const LayoutTable& table, LogicalId id, std::string_view axis) {
  return std::ranges::find(table.logicals[id].axes, axis) != table.logicals[id].axes.end();
}

// The atoms that a rule consumes of a logical tensor are those that it has.
Status CheckAxesOf(const LayoutTable& table, LogicalId id, std::vector<std::string> consumed) {
  const LogicalTensor& logical = table.logicals[id];
  std::vector<std::string> wanted;
  for (const std::string& axis : logical.axes) {
    for (std::string& atom : table.Atoms(axis)) wanted.push_back(std::move(atom));
  }
  std::sort(wanted.begin(), wanted.end());
  std::sort(consumed.begin(), consumed.end());
  if (wanted == consumed) return OkStatus();
  return TableError("a rule consumes each axis of its logical tensor exactly once", logical.name)
      .Expected(fmt::format("{}", fmt::join(wanted, " ")))
      .Hint(fmt::format("the rule has {}", fmt::join(consumed, " ")));
}

Status CheckConsumption(const LayoutTable& table, const TensorRule& rule) {
  std::vector<std::string> common;  // atoms that all slots share
  const auto consume = [&](std::vector<std::string>& into, std::string_view axis) {
    for (std::string& atom : table.Atoms(axis)) into.push_back(std::move(atom));
  };
  for (const std::string& axis : rule.name_axes) {
    if (!rule.derived || !rule.logical || HasAxis(table, *rule.logical, axis))
      consume(common, axis);
  }
  const Factor* sum = nullptr;
  for (const DimRule& dim : rule.dims) {
    for (const Factor& factor : dim) {
      if (factor.slots.empty()) {
        consume(common, factor.axis);
      } else if (sum != nullptr) {
        return TableError("a tensor has at most one direct sum");
      } else {
        sum = &factor;
      }
    }
  }
  if (rule.dims.empty()) return TableError("a tensor has at least one axis");
  if (rule.logical.has_value() == (sum != nullptr)) {
    return TableError("a rule names its logical tensor by '=' or in a direct sum, not both");
  }
  if (rule.logical) return CheckAxesOf(table, *rule.logical, common);
  for (const Slot& slot : sum->slots) {
    if (slot.logical == kZeros) continue;
    std::vector<std::string> consumed = common;
    for (const std::string& axis : slot.axes) consume(consumed, axis);
    CKPT_RETURN_IF_ERROR(CheckAxesOf(table, slot.logical, std::move(consumed)));
  }
  return OkStatus();
}

// Objects are told apart by axes of the logical tensor, not necessarily by all of them.
Status CheckObject(const LayoutTable& table, const TensorRule& rule) {
  std::vector<std::string> bound = rule.name_axes;
  for (const DimRule& dim : rule.dims) {
    if (dim.size() != 1 || !dim.front().slots.empty()) {
      return TableError("a dim of a grid of objects is one axis");
    }
    bound.push_back(dim.front().axis);
  }
  if (!rule.logical || rule.derived) return TableError("expected NAME : AXES = LOGICAL");
  std::vector<std::string> left = table.logicals[*rule.logical].axes;
  for (const std::string& axis : bound) {
    const auto found = std::find(left.begin(), left.end(), axis);
    if (found == left.end()) return TableError("its logical tensor has no such axis left", axis);
    left.erase(found);
  }
  return OkStatus();
}

}  // namespace

Status CheckRule(const LayoutTable& table, const TensorRule& rule) {
  return rule.is_object ? CheckObject(table, rule) : CheckConsumption(table, rule);
}

}  // namespace ckpt::layout
