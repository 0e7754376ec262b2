// The shape that a rule of a layout table gives a tensor: `(g {q: j | k | v} d) h`.
#ifndef CKPT_CORE_LAYOUT_INTERNAL_PARSE_SHAPE_H_
#define CKPT_CORE_LAYOUT_INTERNAL_PARSE_SHAPE_H_

#include <string>
#include <string_view>
#include <vector>

#include "core/base/result.h"
#include "core/layout/layout_table.h"

namespace ckpt::layout {

struct ParsedShape {
  std::vector<DimRule> dims;
  std::vector<std::string> tokens;  // `text` in words and punctuation, without spaces
};

// Errors: kBadMetadata (syntax, an unknown axis or logical tensor).
Result<ParsedShape> ParseShape(const LayoutTable& table, std::string_view text);

}  // namespace ckpt::layout

#endif  // CKPT_CORE_LAYOUT_INTERNAL_PARSE_SHAPE_H_
