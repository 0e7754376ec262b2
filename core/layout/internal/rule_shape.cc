#include "core/layout/internal/rule_shape.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>

#include "core/base/checked_math.h"

namespace ckpt::layout {
namespace {

struct AtomPlace {
  std::string atom;
  AxisPlace place;
};
// Where a logical tensor lies along the dim of a direct sum, and its axes that no other slot has.
struct SlotPlaces {
  LogicalId logical;
  std::int64_t start;
  std::vector<AtomPlace> atoms;
};

class ShapePlacer {
 public:
  ShapePlacer(const LayoutTable& table, const std::vector<ResolvedLogical>& logicals,
              AxisNumbers& axes)
      : table_(table), logicals_(logicals), axes_(axes) {}

  // Computes row-major strides of every factor.
  Result<RuleShape> Place(const TensorRule& rule) {
    RuleShape result;
    std::vector<AtomPlace> common;
    std::vector<SlotPlaces> slots;
    int sum_dim = 0;
    for (std::size_t d = 0; d < rule.dims.size(); ++d) {
      const int dim = static_cast<int>(d);
      std::int64_t stride = 1;
      for (auto factor = rule.dims[d].rbegin(); factor != rule.dims[d].rend(); ++factor) {
        if (factor->slots.empty()) {
          CKPT_RETURN_IF_ERROR(PlaceAxis(factor->axis, dim, stride, common));
        } else {
          sum_dim = dim;
          CKPT_RETURN_IF_ERROR(PlaceSum(factor->slots, dim, stride, slots));
        }
      }
      result.shape.push_back(stride);
    }
    CKPT_RETURN_IF_ERROR(CountElements(result.shape).status());
    if (rule.logical) slots.push_back({*rule.logical, 0, {}});
    for (const SlotPlaces& slot : slots) {
      result.segments.push_back(SegmentOf(slot, common, result.shape.size(), sum_dim));
    }
    return result;
  }

 private:
  // Adds the atoms of `axis` to those of dim `dim`, the innermost first. `stride`: the elements of
  // the dim that lie within what was placed before.
  Status PlaceAxis(std::string_view axis, int dim, std::int64_t& stride,
                   std::vector<AtomPlace>& places) {
    const std::vector<std::string> atoms = table_.Atoms(axis);
    for (auto atom = atoms.rbegin(); atom != atoms.rend(); ++atom) {
      CKPT_ASSIGN_OR_RETURN(const std::int64_t whole, axes_.Extent(*atom));
      const std::int64_t extent = axes_.Stacked(*atom, whole);
      places.push_back({*atom, {extent, dim, stride, 0}});
      if (!CheckedMul(stride, extent, &stride)) return Overflow();
    }
    return OkStatus();
  }

  // The same for a direct sum: each slot begins where the one before ends. Empty ones are left out.
  Status PlaceSum(const std::vector<Slot>& sum, int dim, std::int64_t& stride,
                  std::vector<SlotPlaces>& slots) {
    std::int64_t start = 0;
    for (const Slot& slot : sum) {
      SlotPlaces placed = {slot.logical, start, {}};
      std::int64_t end = stride;
      for (auto axis = slot.axes.rbegin(); axis != slot.axes.rend(); ++axis) {
        CKPT_RETURN_IF_ERROR(PlaceAxis(*axis, dim, end, placed.atoms));
      }
      if (!CheckedAdd(start, end, &start)) return Overflow();
      if (end > 0) slots.push_back(std::move(placed));
    }
    stride = start;
    return OkStatus();
  }

  // `sum_dim`: the dim along which `slot` starts. `common`: the atoms of all slots.
  [[nodiscard]] Segment SegmentOf(const SlotPlaces& slot, const std::vector<AtomPlace>& common,
                                  std::size_t ndim, int sum_dim) const {
    Segment segment;
    segment.logical = slot.logical;
    segment.origin.assign(ndim, 0);
    segment.origin[static_cast<std::size_t>(sum_dim)] = slot.start;
    std::vector<AtomPlace> atoms = slot.atoms;
    atoms.insert(atoms.end(), common.begin(), common.end());
    if (slot.logical == kZeros) {
      for (const AtomPlace& atom : atoms) segment.places.push_back(atom.place);
      return segment;
    }
    const ResolvedLogical& logical = logicals_[slot.logical];
    for (std::size_t a = 0; a < logical.axes.size(); ++a) {
      const auto found = std::ranges::find(atoms, logical.axes[a], &AtomPlace::atom);
      AxisPlace place;
      place.extent = logical.shape[a];
      segment.places.push_back(found != atoms.end() ? found->place : place);
    }
    return segment;
  }

  static Status Overflow() { return Error(ErrorKind::kResource, "shape overflows 63 bits"); }

  const LayoutTable& table_;
  const std::vector<ResolvedLogical>& logicals_;
  AxisNumbers& axes_;
};

}  // namespace

Result<RuleShape> ShapeOf(const TensorRule& rule, const LayoutTable& table,
                          const std::vector<ResolvedLogical>& logicals, AxisNumbers& axes) {
  return ShapePlacer(table, logicals, axes).Place(rule);
}

}  // namespace ckpt::layout
