// Statements of a layout table about axes and logical tensors. They stand before the namings.
//
// All functions: `text` is what stands behind the statement's first word. Errors: kBadMetadata.
#ifndef CKPT_CORE_LAYOUT_INTERNAL_PARSE_AXES_H_
#define CKPT_CORE_LAYOUT_INTERNAL_PARSE_AXES_H_

#include <string_view>

#include "core/base/status.h"
#include "core/layout/layout_table.h"

namespace ckpt::layout {

// dim NAME = expr {min N}
Status ParseDim(std::string_view text, LayoutTable& table);

// split AXIS = PART PART …
Status ParseSplit(std::string_view text, LayoutTable& table);

// logical NAME [axes] {when expr}
Status ParseLogical(std::string_view text, LayoutTable& table);

// extra AXIS from EXPR counted by KEY
Status ParseExtraNumbers(std::string_view text, LayoutTable& table);

}  // namespace ckpt::layout

#endif  // CKPT_CORE_LAYOUT_INTERNAL_PARSE_AXES_H_
