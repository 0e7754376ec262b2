// The file of a family: which configurations belong to it, what its class makes of them, and its
// layout.
#ifndef CKPT_CONVERTERS_FAMILIES_FAMILY_FILE_H_
#define CKPT_CONVERTERS_FAMILIES_FAMILY_FILE_H_

#include <optional>
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
  // `match EXPR`: whether a configuration belongs to the family. Always there.
  std::optional<layout::Expr> match;
  // Of its `let class_NAME = EXPR` lines what follows `let`, by name: facts that no key says.
  std::vector<std::pair<std::string, std::string>> class_facts;
  // Every other line, at the place that it has in the file: a layout table, which only the family
  // of the model at hand needs.
  std::string layout_text;
  std::string file;  // for errors
};

// `name` appears in errors. Errors: kBadMetadata (a line that is wrong, no name, no `match`).
Result<Family> ParseFamily(std::string_view text, std::string_view name);

// The name that a line `let class_NAME = EXPR` defines; nothing for any other line.
std::optional<std::string> NameOfClassFact(std::string_view line);

// The layout of the family. Errors: those of layout::ParseLayoutTable.
Result<layout::LayoutTable> ParseLayout(const Family& family,
                                        const layout::IncludeResolver& includes);

}  // namespace ckpt

#endif  // CKPT_CONVERTERS_FAMILIES_FAMILY_FILE_H_
