// How many numbers axes have in one configuration, and what a naming does with those behind the
// numbers that every model has (LayoutTable::extra).
#ifndef CKPT_CORE_LAYOUT_INTERNAL_AXIS_NUMBERS_H_
#define CKPT_CORE_LAYOUT_INTERNAL_AXIS_NUMBERS_H_

#include <cstdint>
#include <map>
#include <string>
#include <string_view>

#include "core/base/result.h"
#include "core/layout/definitions.h"
#include "core/layout/layout_table.h"

namespace ckpt::layout {

// For one thread.
class AxisNumbers {
 public:
  // All arguments must outlive this.
  AxisNumbers(const LayoutTable& table, const Naming& naming, const DefinedNames& names)
      : table_(table), naming_(naming), names_(names) {}

  // Where the extra numbers of the table's axis begin, and what this form calls them. Call it
  // first. Errors: those of Extent; kBadMetadata (they begin outside the axis).
  Status ResolveExtra();

  // The number of elements along an axis. Errors: kBadMetadata (below the dim's minimum, of the
  // wrong kind, or not the product of its parts), kResource, those of the dim's expression.
  Result<std::int64_t> Extent(std::string_view axis);

  // Of the numbers of an axis, how many this naming has names for, and how many lie along a shape.
  [[nodiscard]] std::int64_t Named(std::string_view axis, std::int64_t extent) const {
    return naming_.leaves_out_extra && IsExtra(axis, extent) ? first_extra_ : extent;
  }
  [[nodiscard]] std::int64_t Stacked(std::string_view axis, std::int64_t extent) const {
    return extra_name_ != nullptr && IsExtra(axis, extent) ? first_extra_ : Named(axis, extent);
  }

  // The model has numbers of LayoutTable::extra.
  [[nodiscard]] bool has_extra() const { return has_extra_; }
  [[nodiscard]] bool IsExtra(std::string_view axis, std::int64_t number) const {
    return table_.extra && axis == table_.extra->axis && number >= first_extra_;
  }
  [[nodiscard]] std::int64_t first_extra() const { return first_extra_; }
  // Null: extra numbers are named as all others.
  [[nodiscard]] const ExtraName* extra_name() const { return extra_name_; }

 private:
  const LayoutTable& table_;
  const Naming& naming_;
  const DefinedNames& names_;
  bool has_extra_ = false;
  std::int64_t first_extra_ = 0;
  const ExtraName* extra_name_ = nullptr;
  std::map<std::string, std::int64_t, std::less<>> extents_;
};

}  // namespace ckpt::layout

#endif  // CKPT_CORE_LAYOUT_INTERNAL_AXIS_NUMBERS_H_
