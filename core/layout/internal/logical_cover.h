// Proves that a resolved layout holds the whole model.
#ifndef CKPT_CORE_LAYOUT_INTERNAL_LOGICAL_COVER_H_
#define CKPT_CORE_LAYOUT_INTERNAL_LOGICAL_COVER_H_

#include <cstdint>
#include <functional>
#include <string_view>

#include "core/base/status.h"
#include "core/layout/resolve.h"

namespace ckpt::layout {

// Of the `extent` numbers of an axis, how many the naming has names for.
using NamedNumbers = std::function<std::int64_t(std::string_view axis, std::int64_t extent)>;

// Every element of every logical tensor that the naming has names for lies in `layout` exactly
// once, copies aside.
//
// Errors: kCoverage, kOverlap, for all logical tensors at once.
Status ProveLogicalCover(const ResolvedLayout& layout, const NamedNumbers& named);

}  // namespace ckpt::layout

#endif  // CKPT_CORE_LAYOUT_INTERNAL_LOGICAL_COVER_H_
