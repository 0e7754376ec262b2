#include "core/base/quote.h"

#include <cstddef>
#include <cstdint>

namespace ckpt {
namespace {

// Length of the well-formed UTF-8 sequence at `at`, or 0. Ranges are those of Unicode's table 3-7.
std::size_t SequenceLength(std::string_view text, std::size_t at) {
  const auto byte = [&](std::size_t i) {
    return at + i < text.size() ? static_cast<std::uint8_t>(text[at + i]) : std::uint8_t{0};
  };
  const auto continues = [&](std::size_t i) { return (byte(i) & 0xC0) == 0x80; };
  const std::uint8_t lead = byte(0);
  const std::uint8_t second = byte(1);
  if (lead < 0x80) return 1;
  if (lead >= 0xC2 && lead <= 0xDF) return continues(1) ? 2 : 0;
  if (lead >= 0xE0 && lead <= 0xEF) {
    const bool overlong = lead == 0xE0 && second < 0xA0;
    const bool surrogate = lead == 0xED && second > 0x9F;
    return continues(1) && continues(2) && !overlong && !surrogate ? 3 : 0;
  }
  if (lead >= 0xF0 && lead <= 0xF4) {
    const bool overlong = lead == 0xF0 && second < 0x90;
    const bool beyond = lead == 0xF4 && second > 0x8F;
    return continues(1) && continues(2) && continues(3) && !overlong && !beyond ? 4 : 0;
  }
  return 0;
}

void AppendEscape(char c, std::string& out) {
  const auto byte = static_cast<std::uint8_t>(c);
  out += "\\x";
  out += "0123456789abcdef"[byte >> 4];
  out += "0123456789abcdef"[byte & 0xF];
}

}  // namespace

std::string EscapeControls(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  for (std::size_t i = 0; i < text.size();) {
    const std::size_t length = SequenceLength(text, i);
    const auto byte = static_cast<std::uint8_t>(text[i]);
    const bool c1_control =
        length == 2 && byte == 0xC2 && static_cast<std::uint8_t>(text[i + 1]) < 0xA0;
    if (length == 0 || byte < 0x20 || byte == 0x7F || c1_control) {
      for (std::size_t k = 0; k < (c1_control ? 2U : 1U); ++k) AppendEscape(text[i + k], out);
      i += c1_control ? 2 : 1;
      continue;
    }
    out.append(text.substr(i, length));
    i += length;
  }
  return out;
}

std::string Quote(std::string_view text, std::size_t max_bytes) {
  // Escape quotes and backslashes first: the backslashes that EscapeControls adds must stay as they
  // are.
  const auto escape = [](std::string_view part) {
    std::string escaped;
    for (const char c : part) {
      if (c == '"' || c == '\\') escaped += '\\';
      escaped += c;
    }
    return EscapeControls(escaped);
  };
  if (text.size() <= max_bytes) return "\"" + escape(text) + "\"";
  const std::size_t half = max_bytes / 2;
  return "\"" + escape(text.substr(0, half)) + "…" + escape(text.substr(text.size() - half)) + "\"";
}

bool IsUtf8(std::string_view text) {
  for (std::size_t i = 0; i < text.size();) {
    const std::size_t length = SequenceLength(text, i);
    if (length == 0) return false;
    i += length;
  }
  return true;
}

}  // namespace ckpt
