// Numbers in text. Unlike std::from_chars, which stops where the number does, these say whether all
// of it was one. As there: digits and perhaps a '-', no '+', no spaces, no locale.
#ifndef CKPT_CORE_BASE_TEXT_NUMBER_H_
#define CKPT_CORE_BASE_TEXT_NUMBER_H_

#include <charconv>
#include <cstddef>
#include <optional>
#include <string_view>
#include <system_error>

namespace ckpt {

constexpr bool IsDigit(char c) { return c >= '0' && c <= '9'; }

// Takes `prefix` off the front of `text`, if it is there.
inline bool TakePrefix(std::string_view prefix, std::string_view& text) {
  if (!text.starts_with(prefix)) return false;
  text.remove_prefix(prefix.size());
  return true;
}

// Takes the number off the front of `text`. Nothing, and `text` stays, if none begins there or if
// `Number` does not hold it.
template <typename Number>
[[nodiscard]] std::optional<Number> TakeNumber(std::string_view& text) {
  Number number{};
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc()) return std::nullopt;
  text.remove_prefix(static_cast<std::size_t>(end - text.data()));
  return number;
}

// The number that `text` is, from its first character to its last.
template <typename Number>
[[nodiscard]] std::optional<Number> ParseNumber(std::string_view text) {
  const std::optional<Number> number = TakeNumber<Number>(text);
  return text.empty() ? number : std::nullopt;
}

}  // namespace ckpt

#endif  // CKPT_CORE_BASE_TEXT_NUMBER_H_
