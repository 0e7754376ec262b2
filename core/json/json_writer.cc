#include "core/json/json_writer.h"

#include <array>
#include <charconv>
#include <cmath>
#include <utility>

#include <fmt/format.h>

#include "core/base/check.h"
#include "core/base/quote.h"

namespace ckpt {

std::string JsonQuote(std::string_view text) {
  std::string out = "\"";
  const bool well_formed = IsUtf8(text);
  for (std::size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    const auto byte = static_cast<unsigned char>(c);
    if (c == '"' || c == '\\') {
      out += '\\';
      out += c;
    } else if (c == '\n') {
      out += "\\n";
    } else if (c == '\t') {
      out += "\\t";
    } else if (byte < 0x20 || byte == 0x7F) {
      out += fmt::format("\\u{:04x}", byte);
    } else if (byte < 0x80 || well_formed) {
      out += c;
    } else {
      out += "\xEF\xBF\xBD";
    }
  }
  return out + "\"";
}

std::string JsonNumber(double value) {
  CKPT_CHECK(std::isfinite(value));
  std::array<char, 32> buffer{};
  const auto [end, error] = std::to_chars(buffer.data(), buffer.data() + buffer.size(), value);
  CKPT_CHECK(error == std::errc());
  std::string text(buffer.data(), end);
  if (text.find_first_of(".e") == std::string::npos) text += ".0";
  return text;
}

void JsonWriter::NewLine() {
  if (indent_ == 0) return;
  out_ += '\n';
  out_.append(levels_.size() * static_cast<std::size_t>(indent_), ' ');
}

void JsonWriter::Separate() {
  if (levels_.empty()) {
    CKPT_CHECK(out_.empty());
    return;
  }
  Level& level = levels_.back();
  if (level.key_pending) {
    level.key_pending = false;
    return;
  }
  CKPT_CHECK(level.close == ']');
  if (!std::exchange(level.empty, false)) out_ += ',';
  NewLine();
}

JsonWriter& JsonWriter::Begin(char open, char close) {
  Separate();
  out_ += open;
  levels_.push_back({.close = close, .empty = true, .key_pending = false});
  return *this;
}

JsonWriter& JsonWriter::End() {
  CKPT_CHECK(!levels_.empty() && !levels_.back().key_pending);
  const Level level = levels_.back();
  levels_.pop_back();
  if (!level.empty) NewLine();
  out_ += level.close;
  return *this;
}

JsonWriter& JsonWriter::Key(std::string_view key) {
  CKPT_CHECK(!levels_.empty() && levels_.back().close == '}' && !levels_.back().key_pending);
  if (!std::exchange(levels_.back().empty, false)) out_ += ',';
  NewLine();
  out_ += JsonQuote(key);
  out_ += indent_ == 0 ? ":" : ": ";
  levels_.back().key_pending = true;
  return *this;
}

JsonWriter& JsonWriter::Raw(std::string_view json) {
  Separate();
  out_ += json;
  return *this;
}

std::string JsonWriter::Take() {
  CKPT_CHECK(levels_.empty());
  return std::move(out_);
}

}  // namespace ckpt
