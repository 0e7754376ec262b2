#include "core/layout/internal/ignore_rules.h"

#include <string>

#include "core/base/quote.h"

namespace ckpt::layout {
namespace {

// Replaces the first `<name>` of `rule` by its value and continues with the rest.
Status Expand(const IgnoreRule& rule, const Names& names, std::vector<IgnoreRule>& resolved) {
  const std::size_t open = rule.pattern.find('<');
  if (open == std::string::npos) {
    resolved.push_back(rule);
    return OkStatus();
  }
  const std::size_t close = rule.pattern.find('>', open);
  if (close == std::string::npos) {
    return Error(ErrorKind::kBadMetadata, "expected '>' after the name in a pattern")
        .Actual(Quote(rule.pattern));
  }
  const std::string name = rule.pattern.substr(open + 1, close - open - 1);
  CKPT_ASSIGN_OR_RETURN(const Value value, names.Get(name));
  const Value::List one = {value};
  const Value::List* const list = value.AsList();
  for (const Value& element : list == nullptr ? one : *list) {
    const std::int64_t* const number = element.AsInt();
    if (number == nullptr) {
      return Error(ErrorKind::kBadMetadata, "a name in a pattern is not a number")
          .Expected("an integer, or a list of them")
          .Actual(name + " = " + FormatValue(value));
    }
    IgnoreRule expanded = rule;
    expanded.pattern.replace(open, close - open + 1, std::to_string(*number));
    CKPT_RETURN_IF_ERROR(Expand(expanded, names, resolved));
  }
  return OkStatus();
}

}  // namespace

Result<std::vector<IgnoreRule>> ResolveIgnoreRules(const std::vector<IgnoreRule>& rules,
                                                   const Names& names) {
  std::vector<IgnoreRule> resolved;
  for (const IgnoreRule& rule : rules) CKPT_RETURN_IF_ERROR(Expand(rule, names, resolved));
  return resolved;
}

}  // namespace ckpt::layout
