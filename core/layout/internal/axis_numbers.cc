#include "core/layout/internal/axis_numbers.h"

#include <cstddef>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "core/base/checked_math.h"
#include "core/layout/value.h"

namespace ckpt::layout {
namespace {

constexpr std::int64_t kMaxExtent = std::int64_t{1} << 40;

}  // namespace

Status AxisNumbers::ResolveExtra() {
  if (!table_.extra) return OkStatus();
  const Expr& from = table_.extra->from;
  CKPT_ASSIGN_OR_RETURN(const Value first, from.Evaluate(names_));
  CKPT_ASSIGN_OR_RETURN(const std::int64_t extent, Extent(table_.extra->axis));
  const std::int64_t* const number = first.AsInt();
  if (number == nullptr || *number < 0 || *number > extent) {
    return Error(ErrorKind::kBadMetadata, "extra numbers of an axis begin outside it")
        .Expected(fmt::format("an integer from 0 to {}", extent))
        .Actual(FormatValue(first))
        .While(fmt::format("axis {}, with {}", table_.extra->axis, names_.Explain(from)));
  }
  first_extra_ = *number;
  has_extra_ = extent > first_extra_;
  for (const ExtraName& name : naming_.extra_names) {
    if (name.when) {
      CKPT_ASSIGN_OR_RETURN(const bool applies, name.when->EvaluateBool(names_));
      if (!applies) continue;
    }
    extra_name_ = &name;
    break;
  }
  return OkStatus();
}

Result<std::int64_t> AxisNumbers::Extent(std::string_view axis) {
  if (const auto known = extents_.find(axis); known != extents_.end()) return known->second;
  const AxisExtent& rule = table_.axes.find(axis)->second;
  const int position = table_.definitions.Find(rule.definition);
  const Expr& body = table_.definitions.all()[static_cast<std::size_t>(position)].body;
  const std::string what =
      fmt::format("dim {} = {}, with {}", axis, body.text(), names_.Explain(body));
  Result<Value> value = names_.Get(rule.definition);
  if (!value.ok()) return std::move(value).status().While(what);
  const std::int64_t* const extent = value->AsInt();
  if (extent == nullptr || *extent < rule.min) {
    return Error(ErrorKind::kBadMetadata, "size in the configuration is not valid")
        .Expected(fmt::format("an integer >= {}", rule.min))
        .Actual(FormatValue(*value))
        .While(what);
  }
  if (*extent > kMaxExtent) {
    return Error(ErrorKind::kResource, "size in the configuration is too large")
        .Expected(fmt::format("at most {}", kMaxExtent))
        .Actual(FormatValue(*value))
        .While(what);
  }
  const std::vector<std::string> atoms = table_.Atoms(axis);
  if (atoms.size() > 1) {
    std::int64_t product = 1;
    for (const std::string& atom : atoms) {
      CKPT_ASSIGN_OR_RETURN(const std::int64_t part, Extent(atom));
      if (!CheckedMul(product, part, &product)) break;
    }
    if (product != *extent) {
      return Error(ErrorKind::kBadMetadata, "the parts of a split axis do not make the whole")
          .Expected(fmt::format("{}", *extent))
          .Actual(fmt::format("{}", product))
          .While(what);
    }
  }
  extents_.emplace(axis, *extent);
  return *extent;
}

}  // namespace ckpt::layout
