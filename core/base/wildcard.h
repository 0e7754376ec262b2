// Names rewritten by a pattern: the one rule for options that take OLD=NEW.
#ifndef CKPT_CORE_BASE_WILDCARD_H_
#define CKPT_CORE_BASE_WILDCARD_H_

#include <optional>
#include <string>
#include <string_view>

#include "core/base/result.h"

namespace ckpt {

// In a pattern, each `*` stands for any text, as little as will do. `\` takes the next byte
// literally. All else is literal: `layers.*.mlp.*`.

// Whether some `*` of the pattern stands for other text.
[[nodiscard]] bool HasStar(std::string_view pattern);
// The pattern of `text` alone, in which only `*` and `\` have a `\` before them.
[[nodiscard]] std::string LiteralPattern(std::string_view text);

// `to`, with the texts in order that the stars of `from` stand for in `text`. Nothing if `from`
// does not match all of `text`. REQUIRES: both have as many stars.
[[nodiscard]] std::optional<std::string> Rewrite(std::string_view from, std::string_view to,
                                                 std::string_view text);

// A pair of patterns with as many stars.
struct RewriteRule {
  std::string from;
  std::string to;
};

// Of "OLD=NEW", in which a `=` of a name is `\=`. A `\` stands before `=`, `*` and `\` alone, so
// that equal patterns are equal texts.
//
// Errors: kUsage (none or several `=` that may divide it, a `\` before anything else, different
// numbers of stars).
Result<RewriteRule> ParseRewrite(std::string_view text);
// The text that ParseRewrite makes `rule` of.
[[nodiscard]] std::string FormatRewrite(const RewriteRule& rule);

}  // namespace ckpt

#endif  // CKPT_CORE_BASE_WILDCARD_H_
