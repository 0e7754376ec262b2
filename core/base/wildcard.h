// Names rewritten by a pattern: the one rule for options that take OLD=NEW.
#ifndef CKPT_CORE_BASE_WILDCARD_H_
#define CKPT_CORE_BASE_WILDCARD_H_

#include <optional>
#include <string>
#include <string_view>

#include "core/base/status.h"

namespace ckpt {

// Each `*` in `from` stands for any text, as little as will do, and the `*` in `to` for the same
// texts in order; all else is literal: `layers.*.mlp.*` to `blocks.*.ffn.*`.
//
// Errors: kUsage (they have different numbers of `*`).
Status CheckRewrite(std::string_view from, std::string_view to);

// Nothing if `from` does not match all of `text`. REQUIRES: CheckRewrite(from, to) is OK.
[[nodiscard]] std::optional<std::string> Rewrite(std::string_view from, std::string_view to,
                                                 std::string_view text);

}  // namespace ckpt

#endif  // CKPT_CORE_BASE_WILDCARD_H_
