// Patterns over keys and names, as users write them: the one rule for every option and setting that
// takes a GLOB.
#ifndef CKPT_CORE_BASE_GLOB_H_
#define CKPT_CORE_BASE_GLOB_H_

#include <string_view>

namespace ckpt {

// Whether `glob` matches all of `text`. `*` matches any text, including dots and slashes. `?`
// matches any one byte, `[a-z_]` one of these bytes, `[!a-z_]` any other byte. `\` takes the next
// byte literally. A `[` without a closing `]`, like every other byte, matches itself.
//
// Cost: at most the product of both lengths.
[[nodiscard]] bool MatchesGlob(std::string_view glob, std::string_view text);

}  // namespace ckpt

#endif  // CKPT_CORE_BASE_GLOB_H_
