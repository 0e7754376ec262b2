#include "core/layout/resolve.h"

#include <algorithm>
#include <iterator>
#include <optional>
#include <utility>

#include <fmt/format.h>

#include "core/base/quote.h"
#include "core/layout/internal/axis_numbers.h"
#include "core/layout/internal/choices.h"
#include "core/layout/internal/ignore_rules.h"
#include "core/layout/internal/logical_cover.h"
#include "core/layout/internal/rule_shape.h"

namespace ckpt::layout {
namespace {

// The largest published models have a hundred thousand tensors. A configuration with more than this
// is wrong.
constexpr std::int64_t kMaxTensors = 1 << 20;

enum class Presence : std::uint8_t { kAbsent, kPresent, kMixed };

Presence Uniform(const std::vector<bool>& presence) {
  const bool any = std::find(presence.begin(), presence.end(), true) != presence.end();
  const bool all = std::find(presence.begin(), presence.end(), false) == presence.end();
  return any ? (all ? Presence::kPresent : Presence::kMixed) : Presence::kAbsent;
}

class Resolver {
 public:
  Resolver(const LayoutTable& table, const Naming& naming, const Configuration& config,
           const Choices& choices)
      : table_(table),
        naming_(naming),
        config_(config),
        names_(table.definitions, config_),
        axes_(table, naming, names_) {
    // Choices are names like any other. They hide a key of the configuration.
    for (const auto& [name, value] : choices) config_.insert_or_assign(name, Value(value));
    layout_.naming = naming.id;
    layout_.prefix = naming.prefixes.front();
    layout_.choices = choices;
  }

  Result<ResolvedLayout> Run() {
    CKPT_ASSIGN_OR_RETURN(layout_.ignores, ResolveIgnoreRules(naming_.ignores, names_));
    for (const StripRule& rule : naming_.strips) {
      CKPT_ASSIGN_OR_RETURN(const bool applies, rule.when.EvaluateBool(names_));
      if (!applies) continue;
      stripped_ = rule.text;
      layout_.form = rule.reason;
    }
    CKPT_RETURN_IF_ERROR(axes_.ResolveExtra());
    layout_.has_extra = axes_.has_extra();
    for (const LogicalTensor& logical : table_.logicals) {
      CKPT_ASSIGN_OR_RETURN(ResolvedLogical resolved, ResolveLogical(logical));
      layout_.logicals.push_back(std::move(resolved));
    }
    shapes_.resize(naming_.rules.size());
    CKPT_RETURN_IF_ERROR(Expand(0, naming_.rules.size(), 0, 1));
    CKPT_RETURN_IF_ERROR(ProveLogicalCover(
        layout_,
        [&](std::string_view axis, std::int64_t extent) { return axes_.Named(axis, extent); }));
    return std::move(layout_);
  }

 private:
  Result<ResolvedLogical> ResolveLogical(const LogicalTensor& logical) {
    ResolvedLogical resolved;
    resolved.name = logical.name;
    std::string what = "deciding whether the model has " + logical.name;
    if (logical.when) what += ", with " + names_.Explain(*logical.when);
    if (logical.when_axis) {
      CKPT_ASSIGN_OR_RETURN(const std::int64_t extent, axes_.Extent(*logical.when_axis));
      if (extent > kMaxTensors) return TooMany(*logical.when_axis, extent);
      for (std::int64_t i = 0; i < extent; ++i) {
        Result<bool> present = logical.when->EvaluateBool(LocalName(names_, *logical.when_axis, i));
        if (!present.ok()) return std::move(present).status().While(what);
        resolved.presence.push_back(*present);
      }
    } else if (logical.when) {
      Result<bool> present = logical.when->EvaluateBool(names_);
      if (!present.ok()) return std::move(present).status().While(what);
      resolved.presence = {*present};
    } else {
      resolved.presence = {true};
    }
    // Sizes of parts that the model lacks need not be valid: a dense model has no number of
    // experts.
    if (!resolved.IsPresentAnywhere()) return resolved;
    for (const std::string& axis : logical.axes) {
      if (logical.when_axis == axis) {
        if (table_.Atoms(axis).size() > 1) {
          return Error(ErrorKind::kBadMetadata, "a condition may not read a split axis")
              .Actual(axis);
        }
        resolved.presence_axis = static_cast<int>(resolved.axes.size());
      }
      for (std::string& atom : table_.Atoms(axis)) {
        CKPT_ASSIGN_OR_RETURN(const std::int64_t extent, axes_.Extent(atom));
        resolved.axes.push_back(std::move(atom));
        resolved.shape.push_back(extent);
      }
    }
    Result<std::int64_t> count = CountElements(resolved.shape);
    if (!count.ok()) return std::move(count).status().While("sizing " + logical.name);
    return resolved;
  }

  Status TooMany(std::string_view axis, std::int64_t count) const {
    return Error(ErrorKind::kResource, "configuration asks for too many tensors")
        .Expected(fmt::format("at most {}", kMaxTensors))
        .Actual(fmt::format("{} along axis {}", count, axis))
        .While("counting layers and experts, with " + ExplainAxis(axis));
  }

  [[nodiscard]] std::string ExplainAxis(std::string_view axis) const {
    const int position = table_.definitions.Find(axis);
    if (position < 0) return "axis " + std::string(axis);
    return names_.Explain(table_.definitions.all()[static_cast<std::size_t>(position)].body);
  }

  // Emits the tensors of rules [begin, end), which bind the same first `depth` name axes: these
  // have so many numbers, `combinations`. Neighbours that bind the same next axis are expanded
  // together, so that tensors come out layer by layer.
  Status Expand(std::size_t begin, std::size_t end, std::size_t depth, std::int64_t combinations) {
    for (std::size_t i = begin; i < end;) {
      const std::vector<std::string>& axes = naming_.rules[i].name_axes;
      if (axes.size() == depth) {
        CKPT_RETURN_IF_ERROR(Emit(i));
        ++i;
        continue;
      }
      std::size_t group_end = i + 1;
      while (group_end < end && naming_.rules[group_end].name_axes.size() > depth &&
             naming_.rules[group_end].name_axes[depth] == axes[depth]) {
        ++group_end;
      }
      if (IsAnyPresent(i, group_end)) {
        CKPT_ASSIGN_OR_RETURN(const std::int64_t extent, axes_.Extent(axes[depth]));
        if (extent > kMaxTensors) return TooMany(axes[depth], extent);
        const std::int64_t count = axes_.Named(axes[depth], extent);
        // A rule that applies to none of them is tried with each.
        const std::int64_t more = combinations * std::max<std::int64_t>(count, 1);
        if (more > kMaxTensors) return TooMany(axes[depth], more);
        for (std::int64_t number = 0; number < count; ++number) {
          bound_.emplace_back(axes[depth], number);
          CKPT_RETURN_IF_ERROR(Expand(i, group_end, depth + 1, more));
          bound_.pop_back();
        }
      }
      i = group_end;
    }
    return OkStatus();
  }

  [[nodiscard]] std::vector<LogicalId> LogicalsOf(const TensorRule& rule) const {
    if (rule.logical) return {*rule.logical};
    std::vector<LogicalId> ids;
    for (const DimRule& dim : rule.dims) {
      for (const Factor& factor : dim) {
        for (const Slot& slot : factor.slots) {
          if (slot.logical != kZeros) ids.push_back(slot.logical);
        }
      }
    }
    return ids;
  }
  [[nodiscard]] bool IsAnyPresent(std::size_t begin, std::size_t end) const {
    for (std::size_t i = begin; i < end; ++i) {
      for (const LogicalId id : LogicalsOf(naming_.rules[i])) {
        if (IsBound(id) ? PresenceOf(id) != Presence::kAbsent
                        : layout_.logicals[id].IsPresentAnywhere()) {
          return true;
        }
      }
    }
    return false;
  }
  // Whether its condition is decided for the numbers bound so far.
  [[nodiscard]] bool IsBound(LogicalId id) const {
    const std::optional<std::string>& axis = table_.logicals[id].when_axis;
    return axis &&
           std::ranges::find(bound_, *axis, [](const auto& b) { return b.first; }) != bound_.end();
  }
  // Whether the tensor is present for the numbers bound so far.
  [[nodiscard]] Presence PresenceOf(LogicalId id) const {
    const ResolvedLogical& logical = layout_.logicals[id];
    const std::optional<std::string>& axis = table_.logicals[id].when_axis;
    if (axis) {
      for (const auto& [name, number] : bound_) {
        if (name == *axis) {
          return logical.presence[static_cast<std::size_t>(number)] ? Presence::kPresent
                                                                    : Presence::kAbsent;
        }
      }
    }
    if (!axis) return Uniform(logical.presence);
    const std::int64_t extent = std::ssize(logical.presence);
    const auto first = logical.presence.begin();
    return Uniform(std::vector<bool>(first, first + axes_.Stacked(*axis, extent)));
  }

  Status Emit(std::size_t rule_index) {
    const TensorRule& rule = naming_.rules[rule_index];
    const std::vector<LogicalId> logicals = LogicalsOf(rule);
    int present = 0;
    bool is_mixed = false;
    for (const LogicalId id : logicals) {
      const Presence presence = PresenceOf(id);
      is_mixed = is_mixed || presence == Presence::kMixed;
      if (presence != Presence::kAbsent) ++present;
    }
    // With no logical tensor, it is all padding.
    if (present == 0 && !logicals.empty()) return OkStatus();
    CKPT_ASSIGN_OR_RETURN(const bool applies, Applies(rule));
    if (!applies) return OkStatus();
    if (is_mixed) {
      return Error(ErrorKind::kUnsupported, "a stacked tensor needs layers that are all alike")
          .Tensor(NameOf(rule))
          .Hint("choose the form of the naming that has one tensor a layer");
    }
    if (present != static_cast<int>(logicals.size())) {
      return Error(ErrorKind::kBadMetadata, "model has only some of the slots of a fused tensor")
          .Tensor(NameOf(rule));
    }
    if (static_cast<std::int64_t>(layout_.tensors.size() + layout_.objects.size()) == kMaxTensors) {
      return TooMany(rule.name_axes.empty() ? "?" : rule.name_axes.front(), kMaxTensors + 1);
    }
    if (rule.is_object) return EmitObject(rule);
    if (!shapes_[rule_index]) {
      Result<RuleShape> shape = ShapeOf(rule, table_, layout_.logicals, axes_);
      if (!shape.ok()) return std::move(shape).status().Tensor(NameOf(rule));
      shapes_[rule_index] = std::move(shape).value();
    }
    ResolvedTensor tensor;
    tensor.name = NameOf(rule);
    tensor.is_stripped = !stripped_.empty() && rule.name.front().text.starts_with(stripped_);
    tensor.shape = shapes_[rule_index]->shape;
    tensor.segments = shapes_[rule_index]->segments;
    tensor.derived = rule.derived;
    tensor.expected = rule.expected;
    CKPT_RETURN_IF_ERROR(BindNumbers(tensor));
    layout_.tensors.push_back(std::move(tensor));
    return OkStatus();
  }

  Status EmitObject(const TensorRule& rule) {
    ResolvedObject object = {.name = NameOf(rule), .grid = {}};
    for (const DimRule& dim : rule.dims) {
      CKPT_ASSIGN_OR_RETURN(const std::int64_t extent, axes_.Extent(dim.front().axis));
      object.grid.push_back(axes_.Stacked(dim.front().axis, extent));
    }
    layout_.objects.push_back(std::move(object));
    return OkStatus();
  }

  Result<bool> Applies(const TensorRule& rule) const {
    for (const Expr& when : rule.when) {
      CKPT_ASSIGN_OR_RETURN(const bool holds, EvaluateBound(when, names_, 0));
      if (!holds) return false;
    }
    return true;
  }
  Result<bool> EvaluateBound(const Expr& when, const Names& names, std::size_t next) const {
    if (next == bound_.size()) return when.EvaluateBool(names);
    return EvaluateBound(when, LocalName(names, bound_[next].first, bound_[next].second), next + 1);
  }

  [[nodiscard]] std::string NameOf(const TensorRule& rule) const {
    const ExtraName* const extra_name = axes_.extra_name();
    std::string name;
    std::string_view behind;  // the number of the part before, in the rule
    for (const NamePart& part : rule.name) {
      std::string_view text = part.text;
      if (!behind.empty() && text.starts_with(behind)) text.remove_prefix(behind.size());
      behind = {};
      const auto bound =
          std::ranges::find(bound_, part.axis, [](const auto& b) { return b.first; });
      if (bound == bound_.end()) {
        name += text;
        continue;
      }
      const bool is_extra = extra_name != nullptr && axes_.IsExtra(part.axis, bound->second);
      const std::string number =
          std::to_string(bound->second + part.plus - (is_extra ? axes_.first_extra() : 0));
      if (is_extra && text == extra_name->before) {
        name += extra_name->before_extra + number + extra_name->behind_extra;
        behind = extra_name->behind;
      } else {
        name.append(text).append(number);
      }
    }
    if (name.starts_with(stripped_)) name.erase(0, stripped_.size());
    return name;
  }

  // Writes the bound numbers into the segments. The number of a split axis becomes the numbers of
  // its atoms.
  Status BindNumbers(ResolvedTensor& tensor) {
    for (const auto& [axis, number] : bound_) {
      const std::vector<std::string> atoms = table_.Atoms(axis);
      std::int64_t rest = number;
      for (auto atom = atoms.rbegin(); atom != atoms.rend(); ++atom) {
        CKPT_ASSIGN_OR_RETURN(const std::int64_t extent, axes_.Extent(*atom));
        for (Segment& segment : tensor.segments) {
          if (segment.logical == kZeros) continue;
          const std::vector<std::string>& axes = layout_.logicals[segment.logical].axes;
          const auto found = std::find(axes.begin(), axes.end(), *atom);
          if (found == axes.end()) continue;  // it counts copies
          segment.places[static_cast<std::size_t>(found - axes.begin())].index = rest % extent;
        }
        rest /= extent;
      }
    }
    return OkStatus();
  }

  const LayoutTable& table_;
  const Naming& naming_;
  Configuration config_;
  DefinedNames names_;
  AxisNumbers axes_;
  std::string stripped_;  // the prefix that names lose
  ResolvedLayout layout_;
  std::vector<std::optional<RuleShape>> shapes_;  // by rule, computed when needed
  std::vector<std::pair<std::string, std::int64_t>> bound_;
};

Result<const Naming*> NeedNaming(const LayoutTable& table, std::string_view id) {
  if (const Naming* naming = table.FindNaming(id)) return naming;
  std::vector<std::string> known;
  for (const Naming& naming : table.namings) known.push_back(naming.id);
  return Error(ErrorKind::kUsage, "layout table has no such naming")
      .Expected(fmt::format("{}", fmt::join(known, ", ")))
      .Actual(Quote(id));
}

}  // namespace

bool ResolvedLogical::IsPresentAnywhere() const { return Uniform(presence) != Presence::kAbsent; }

Result<ResolvedLayout> ResolveExactly(const LayoutTable& table, std::string_view naming_id,
                                      const Configuration& config, const Choices& choices) {
  CKPT_ASSIGN_OR_RETURN(const Naming* naming, NeedNaming(table, naming_id));
  CKPT_ASSIGN_OR_RETURN(const Choices complete, CompleteChoices(*naming, choices));
  return Resolver(table, *naming, config, complete).Run();
}

Result<ResolvedLayout> Resolve(const LayoutTable& table, std::string_view naming_id,
                               const Configuration& config, const Choices& choices) {
  CKPT_ASSIGN_OR_RETURN(const Naming* naming, NeedNaming(table, naming_id));
  CKPT_ASSIGN_OR_RETURN(const Choices checked, CompleteChoices(*naming, choices));
  Result<ResolvedLayout> first = Resolver(table, *naming, config, checked).Run();
  if (first.ok() || first.status().kind() != ErrorKind::kUnsupported) return first;
  for (const Choices& form : ListChoices(*naming, choices)) {
    Result<ResolvedLayout> layout = Resolver(table, *naming, config, form).Run();
    if (layout.ok()) return layout;
  }
  return first;
}

}  // namespace ckpt::layout
