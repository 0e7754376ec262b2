// The shape that a rule of a layout table gives its tensors, and where the logical elements lie in
// it.
#ifndef CKPT_CORE_LAYOUT_INTERNAL_RULE_SHAPE_H_
#define CKPT_CORE_LAYOUT_INTERNAL_RULE_SHAPE_H_

#include <vector>

#include "core/base/result.h"
#include "core/layout/internal/axis_numbers.h"
#include "core/layout/layout_table.h"
#include "core/layout/resolve.h"
#include "core/tensor/shape.h"

namespace ckpt::layout {

// What all tensors of one rule share. The numbers of axes bound by name are still zero.
struct RuleShape {
  Dims shape;
  std::vector<Segment> segments;
};

// `logicals`: parallel to those of `table`. Errors: those of AxisNumbers::Extent, kResource.
Result<RuleShape> ShapeOf(const TensorRule& rule, const LayoutTable& table,
                          const std::vector<ResolvedLogical>& logicals, AxisNumbers& axes);

}  // namespace ckpt::layout

#endif  // CKPT_CORE_LAYOUT_INTERNAL_RULE_SHAPE_H_
