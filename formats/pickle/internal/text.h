// Text as the older pickle opcodes write it.
#ifndef CKPT_FORMATS_PICKLE_INTERNAL_TEXT_H_
#define CKPT_FORMATS_PICKLE_INTERNAL_TEXT_H_

#include <optional>
#include <string>
#include <string_view>

namespace ckpt::pickle {

// Whether this is UTF-8 in which surrogates may stand alone (CPython's "surrogatepass").
[[nodiscard]] bool IsPickledUtf8(std::string_view text);

// Appends a code point as UTF-8, a surrogate as if it were one. REQUIRES: at most 0x10FFFF.
void AppendCodePoint(char32_t code, std::string& out);

// UNICODE: Latin-1 with \uXXXX and \UXXXXXXXX. Nothing if malformed.
[[nodiscard]] std::optional<std::string> DecodeRawUnicodeEscape(std::string_view line);

// STRING: a quoted literal of Python 2, without its escapes. Nothing if malformed.
[[nodiscard]] std::optional<std::string> DecodeStringLiteral(std::string_view line);

// The little-endian two's complement of decimal digits with an optional sign, as short as LONG1
// writes it. Nothing if malformed or longer than CPython's own limit of 4300 digits.
[[nodiscard]] std::optional<std::string> DecodeDecimal(std::string_view digits);

// The decimal digits of a little-endian two's complement number.
[[nodiscard]] std::string FormatBigInt(std::string_view twos_complement);

}  // namespace ckpt::pickle

#endif  // CKPT_FORMATS_PICKLE_INTERNAL_TEXT_H_
