#include "formats/pickle/internal/text.h"

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <vector>

#include "core/base/text_number.h"

namespace ckpt::pickle {
namespace {

constexpr std::size_t kMaxDecimalDigits = 4300;

std::optional<char32_t> ParseHex(std::string_view digits) {
  char32_t value = 0;
  for (const char c : digits) {
    const int digit = IsDigit(c)             ? c - '0'
                      : c >= 'a' && c <= 'f' ? c - 'a' + 10
                      : c >= 'A' && c <= 'F' ? c - 'A' + 10
                                             : -1;
    if (digit < 0) return std::nullopt;
    value = value * 16 + static_cast<char32_t>(digit);
  }
  return value;
}

}  // namespace

bool IsPickledUtf8(std::string_view text) {
  std::size_t i = 0;
  while (i < text.size()) {
    // Most text of a checkpoint is ASCII, so eight such bytes are taken at a time.
    if (text.size() - i >= 8) {
      std::uint64_t word = 0;
      std::memcpy(&word, text.data() + i, 8);
      if ((word & 0x8080808080808080ULL) == 0) {
        i += 8;
        continue;
      }
    }
    const auto lead = static_cast<unsigned char>(text[i]);
    if (lead < 0x80) {
      ++i;
      continue;
    }
    const std::size_t length = lead >= 0xF0 ? 4 : lead >= 0xE0 ? 3 : 2;
    if (lead < 0xC2 || lead > 0xF4 || text.size() - i < length) return false;
    char32_t code = lead & (0xFFU >> (length + 1));
    for (std::size_t k = 1; k < length; ++k) {
      const auto next = static_cast<unsigned char>(text[i + k]);
      if ((next & 0xC0) != 0x80) return false;
      code = (code << 6) | (next & 0x3FU);
    }
    if ((length == 3 && code < 0x800) || (length == 4 && (code < 0x10000 || code > 0x10FFFF))) {
      return false;
    }
    i += length;
  }
  return true;
}

void AppendCodePoint(char32_t code, std::string& out) {
  const auto put = [&out](char32_t byte) { out += static_cast<char>(byte); };
  if (code < 0x80) {
    put(code);
  } else if (code < 0x800) {
    put(0xC0 | (code >> 6));
    put(0x80 | (code & 0x3F));
  } else if (code < 0x10000) {
    put(0xE0 | (code >> 12));
    put(0x80 | ((code >> 6) & 0x3F));
    put(0x80 | (code & 0x3F));
  } else {
    put(0xF0 | (code >> 18));
    put(0x80 | ((code >> 12) & 0x3F));
    put(0x80 | ((code >> 6) & 0x3F));
    put(0x80 | (code & 0x3F));
  }
}

std::optional<std::string> DecodeRawUnicodeEscape(std::string_view line) {
  std::string out;
  for (std::size_t i = 0; i < line.size();) {
    const char next = line[i] == '\\' && i + 1 < line.size() ? line[i + 1] : '\0';
    if (next != 'u' && next != 'U') {
      AppendCodePoint(static_cast<unsigned char>(line[i++]), out);
      continue;
    }
    const std::size_t width = next == 'u' ? 4 : 8;
    if (line.size() - i - 2 < width) return std::nullopt;
    const std::optional<char32_t> code = ParseHex(line.substr(i + 2, width));
    if (!code || *code > 0x10FFFF) return std::nullopt;
    AppendCodePoint(*code, out);
    i += 2 + width;
  }
  return out;
}

std::optional<std::string> DecodeStringLiteral(std::string_view line) {
  if (line.size() < 2 || line.front() != line.back() ||
      (line.front() != '\'' && line.front() != '"')) {
    return std::nullopt;
  }
  line = line.substr(1, line.size() - 2);
  std::string out;
  for (std::size_t i = 0; i < line.size(); ++i) {
    if (line[i] != '\\') {
      out += line[i];
      continue;
    }
    if (++i == line.size()) return std::nullopt;
    constexpr std::string_view kNames = "abfnrtv\\'\"";
    constexpr std::string_view kValues = "\a\b\f\n\r\t\v\\'\"";
    if (const std::size_t known = kNames.find(line[i]); known != std::string_view::npos) {
      out += kValues[known];
    } else if (line[i] == 'x') {
      if (line.size() - i - 1 < 2) return std::nullopt;
      const std::optional<char32_t> byte = ParseHex(line.substr(i + 1, 2));
      if (!byte) return std::nullopt;
      out += static_cast<char>(*byte);
      i += 2;
    } else {
      return std::nullopt;  // repr() writes no other escape
    }
  }
  return out;
}

std::optional<std::string> DecodeDecimal(std::string_view digits) {
  const bool negative = !digits.empty() && digits[0] == '-';
  if (!digits.empty() && (digits[0] == '-' || digits[0] == '+')) digits.remove_prefix(1);
  if (digits.empty() || digits.size() > kMaxDecimalDigits) return std::nullopt;
  std::string bytes;  // of the magnitude
  for (const char c : digits) {
    if (!IsDigit(c)) return std::nullopt;
    auto carry = static_cast<unsigned>(c - '0');
    for (char& byte : bytes) {
      carry += static_cast<unsigned char>(byte) * 10U;
      byte = static_cast<char>(carry & 0xFF);
      carry >>= 8;
    }
    if (carry != 0) bytes += static_cast<char>(carry);
  }
  if (negative) {
    unsigned carry = 1;
    for (char& byte : bytes) {
      carry += static_cast<unsigned char>(~byte);
      byte = static_cast<char>(carry & 0xFF);
      carry >>= 8;
    }
  }
  const bool sign_bit = !bytes.empty() && (bytes.back() & 0x80) != 0;
  if (!bytes.empty() && sign_bit != negative) bytes += negative ? '\xFF' : '\0';
  return bytes;
}

std::string FormatBigInt(std::string_view bytes) {
  const bool negative = !bytes.empty() && (bytes.back() & 0x80) != 0;
  // The magnitude in base 2^32, least digit first.
  std::vector<std::uint32_t> words((bytes.size() + 3) / 4, negative ? 0xFFFFFFFF : 0);
  for (std::size_t i = 0; i < bytes.size(); ++i) {
    const std::uint32_t shift = 8 * static_cast<std::uint32_t>(i % 4);
    words[i / 4] &= ~(0xFFU << shift);
    words[i / 4] |= static_cast<std::uint32_t>(static_cast<unsigned char>(bytes[i])) << shift;
  }
  if (negative) {
    std::uint64_t carry = 1;
    for (std::uint32_t& word : words) {
      carry += static_cast<std::uint32_t>(~word);
      word = static_cast<std::uint32_t>(carry);
      carry >>= 32;
    }
  }
  std::string digits;
  while (!words.empty()) {
    std::uint64_t rest = 0;
    for (std::size_t i = words.size(); i-- > 0;) {
      rest = (rest << 32) | words[i];
      words[i] = static_cast<std::uint32_t>(rest / 1'000'000'000);
      rest %= 1'000'000'000;
    }
    while (!words.empty() && words.back() == 0) words.pop_back();
    for (int k = 0; k < 9 && (rest != 0 || !words.empty()); ++k, rest /= 10) {
      digits += static_cast<char>('0' + rest % 10);
    }
  }
  if (digits.empty()) digits = "0";
  if (negative) digits += '-';
  std::reverse(digits.begin(), digits.end());
  return digits;
}

}  // namespace ckpt::pickle
