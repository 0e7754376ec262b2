// What a model has many of, each with tensors of its own: layers, experts.
#ifndef CKPT_CORE_LAYOUT_NUMBERED_AXES_H_
#define CKPT_CORE_LAYOUT_NUMBERED_AXES_H_

#include <cstdint>
#include <set>
#include <string>
#include <vector>

#include "core/layout/layout_table.h"
#include "core/layout/value.h"

namespace ckpt::layout {

// An axis whose numbers are in the names of tensors, in some form of some naming. Other forms stack
// it: there it is a part of a dim.
struct NumberedAxis {
  std::string axis;
  std::int64_t extent = 0;
  std::set<std::string> keys;  // of the configuration, on which the extent depends
};

// Those of which the configuration says an extent, in byte order of the axis.
[[nodiscard]] std::vector<NumberedAxis> NumberedAxes(const LayoutTable& table,
                                                     const Configuration& config);

}  // namespace ckpt::layout

#endif  // CKPT_CORE_LAYOUT_NUMBERED_AXES_H_
