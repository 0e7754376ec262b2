// Patterns over keys and names, as users write them: the one rule of every option and setting that takes a GLOB.
#ifndef CKPT_CORE_BASE_GLOB_H_
#define CKPT_CORE_BASE_GLOB_H_

#include <string_view>

namespace ckpt {

// Whether `glob` matches all of `text`. `*` is any text, dots and slashes included, `?` any one byte, `[a-z_]` one byte of
// these and `[!a-z_]` one of the others; `\` takes the byte behind it as it is. A `[` that nothing closes is itself, as
// every other byte is.
//
// Cost: at most the product of both lengths.
[[nodiscard]] bool MatchesGlob(std::string_view glob, std::string_view text);

}  // namespace ckpt

#endif  // CKPT_CORE_BASE_GLOB_H_
