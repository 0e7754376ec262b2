// The file of a family: which configurations belong to it, what its class makes of them, and its
// layout.
#ifndef CKPT_CONVERTERS_FAMILIES_FAMILY_FILE_H_
#define CKPT_CONVERTERS_FAMILIES_FAMILY_FILE_H_

#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/base/result.h"
#include "core/layout/expr.h"
#include "core/layout/layout_table.h"

namespace ckpt {

struct Family {
  // `family NAME`. The layout, which families share, has a name of its own.
  std::string name;
  // `default KEY = EXPR`: what the class takes for a key that is not there; null is nothing. The
  // expression sees the configuration.
  std::vector<std::pair<std::string, layout::Expr>> defaults;
  // `reads KEY …`: keys that classes of other families do not read.
  std::set<std::string, std::less<>> reads;
  // Everything else. It has a `match`.
  layout::LayoutTable table;
};

// `name` appears in errors. Errors: those of layout::ParseLayoutTable; kBadMetadata (a line that is
// wrong, no `match`).
Result<Family> ParseFamily(std::string_view text, std::string_view name,
                           const layout::IncludeResolver& includes);

}  // namespace ckpt

#endif  // CKPT_CONVERTERS_FAMILIES_FAMILY_FILE_H_
