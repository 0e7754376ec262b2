// Makes untrusted text safe to print.
#ifndef CKPT_CORE_BASE_QUOTE_H_
#define CKPT_CORE_BASE_QUOTE_H_

#include <string>
#include <string_view>

namespace ckpt {

// Control characters (including terminal escapes) and bytes that are not UTF-8 become \xNN. The
// rest is kept.
std::string EscapeControls(std::string_view text);

// EscapeControls between double quotes, with " and \ escaped. A result longer than `max_bytes` is
// cut in the middle.
std::string Quote(std::string_view text, std::size_t max_bytes = 200);

// Whether every byte belongs to a well-formed UTF-8 sequence (no surrogates, no overlong forms).
bool IsUtf8(std::string_view text);

}  // namespace ckpt

#endif  // CKPT_CORE_BASE_QUOTE_H_
