#include "core/json/json_scanner.h"

#include <fmt/format.h>

#include "core/base/checked_math.h"
#include "core/base/quote.h"
#include "core/base/text_number.h"

namespace ckpt {
namespace {

constexpr int kMaxDepth = 64;

void AppendUtf8(std::uint32_t code, std::string& out) {
  const auto byte = [&out](std::uint32_t value) { out += static_cast<char>(value); };
  if (code < 0x80) {
    byte(code);
  } else if (code < 0x800) {
    byte(0xC0 | (code >> 6));
    byte(0x80 | (code & 0x3F));
  } else if (code < 0x10000) {
    byte(0xE0 | (code >> 12));
    byte(0x80 | ((code >> 6) & 0x3F));
    byte(0x80 | (code & 0x3F));
  } else {
    byte(0xF0 | (code >> 18));
    byte(0x80 | ((code >> 12) & 0x3F));
    byte(0x80 | ((code >> 6) & 0x3F));
    byte(0x80 | (code & 0x3F));
  }
}

}  // namespace

JsonScanner::JsonScanner(std::string_view text, std::string_view name) : text_(text), name_(name) {
  if (!IsUtf8(text)) status_ = Error(ErrorKind::kBadMetadata, "JSON is not UTF-8").File(name);
}

void JsonScanner::Fail(ErrorKind kind, std::string_view message, std::string_view actual) {
  if (!ok()) return;
  status_ = Error(kind, message).File(name_).Actual(actual);
  status_ = std::move(status_).While(fmt::format("reading JSON at byte {}", at_));
}

void JsonScanner::Expected(std::string_view what) {
  if (!ok()) return;
  const std::string found = at_ < text_.size() ? Quote(text_.substr(at_, 20)) : "the end";
  Fail(ErrorKind::kBadMetadata, fmt::format("not valid JSON here: expected {}", what), found);
}

void JsonScanner::SkipSpace() {
  while (at_ < text_.size()) {
    const char c = text_[at_];
    if (c != ' ' && c != '\n' && c != '\t' && c != '\r') return;
    ++at_;
  }
}

bool JsonScanner::Consume(char wanted) {
  SkipSpace();
  if (at_ >= text_.size() || text_[at_] != wanted) return false;
  ++at_;
  return true;
}

JsonKind JsonScanner::Peek() {
  SkipSpace();
  if (!ok() || at_ >= text_.size()) return JsonKind::kNull;
  switch (text_[at_]) {
    case '{':
      return JsonKind::kObject;
    case '[':
      return JsonKind::kArray;
    case '"':
      return JsonKind::kText;
    case 't':
    case 'f':
      return JsonKind::kBool;
    case '-':
      return JsonKind::kInt;
    default:
      return IsDigit(text_[at_]) ? JsonKind::kUint : JsonKind::kNull;
  }
}

bool JsonScanner::Begin(char open) {
  if (!ok()) return false;
  if (!Consume(open)) {
    Expected(open == '{' ? "an object" : "an array");
    return false;
  }
  if (++depth_ > kMaxDepth) {
    Fail(ErrorKind::kResource, fmt::format("JSON is nested more than {} levels deep", kMaxDepth));
    return false;
  }
  at_first_ = true;
  return true;
}

bool JsonScanner::Next(char close) {
  if (!ok()) return false;
  if (Consume(close)) {
    at_first_ = false;
    --depth_;
    return false;
  }
  if (!at_first_ && !Consume(',')) {
    Expected(close == '}' ? "',' or '}'" : "',' or ']'");
    return false;
  }
  at_first_ = false;
  return true;
}

bool JsonScanner::BeginObject() { return Begin('{'); }
bool JsonScanner::BeginArray() { return Begin('['); }
bool JsonScanner::NextItem() { return Next(']'); }

bool JsonScanner::NextMember(std::string& key) {
  if (!Next('}')) return false;
  key = Text();
  if (ok() && !Consume(':')) Expected("':'");
  return ok();
}

std::string JsonScanner::Text() {
  std::string out;
  if (!ok()) return out;
  if (!Consume('"')) {
    Expected("a string");
    return out;
  }
  while (ok()) {
    const std::size_t begin = at_;
    while (at_ < text_.size() && text_[at_] != '"' && text_[at_] != '\\' &&
           static_cast<unsigned char>(text_[at_]) >= 0x20) {
      ++at_;
    }
    out.append(text_, begin, at_ - begin);
    if (at_ >= text_.size() || static_cast<unsigned char>(text_[at_]) < 0x20) {
      Expected("the end of a string");
    } else if (text_[at_++] == '"') {
      return out;
    } else {
      AppendEscape(out);
    }
  }
  return {};
}

void JsonScanner::AppendEscape(std::string& out) {
  const char c = at_ < text_.size() ? text_[at_++] : '\0';
  switch (c) {
    case '"':
    case '\\':
    case '/':
      out += c;
      return;
    case 'b':
      out += '\b';
      return;
    case 'f':
      out += '\f';
      return;
    case 'n':
      out += '\n';
      return;
    case 'r':
      out += '\r';
      return;
    case 't':
      out += '\t';
      return;
    case 'u':
      break;
    default:
      Expected("an escape sequence");
      return;
  }
  std::uint32_t code = FourHexDigits();
  if (code >= 0xD800 && code < 0xDC00 && text_.substr(at_, 2) == "\\u") {
    at_ += 2;
    const std::uint32_t low = FourHexDigits();
    if (low >= 0xDC00 && low < 0xE000) {
      code = 0x10000 + ((code - 0xD800) << 10) + (low - 0xDC00);
    }
  }
  if (code >= 0xD800 && code < 0xE000) {
    Fail(ErrorKind::kBadMetadata, "JSON string has half of a surrogate pair");
    return;
  }
  AppendUtf8(code, out);
}

std::uint32_t JsonScanner::FourHexDigits() {
  std::uint32_t value = 0;
  for (int i = 0; i < 4; ++i) {
    const char c = at_ < text_.size() ? text_[at_] : '\0';
    if (IsDigit(c)) {
      value = value * 16 + static_cast<std::uint32_t>(c - '0');
    } else if (c >= 'a' && c <= 'f') {
      value = value * 16 + static_cast<std::uint32_t>(c - 'a' + 10);
    } else if (c >= 'A' && c <= 'F') {
      value = value * 16 + static_cast<std::uint32_t>(c - 'A' + 10);
    } else {
      Expected("four hex digits");
      return 0;
    }
    ++at_;
  }
  return value;
}

std::uint64_t JsonScanner::Uint() {
  if (!ok()) return 0;
  SkipSpace();
  const std::size_t begin = at_;
  std::uint64_t value = 0;
  bool fits = true;
  for (; at_ < text_.size() && IsDigit(text_[at_]); ++at_) {
    fits = fits && CheckedMul<std::uint64_t>(value, 10, &value) &&
           CheckedAdd<std::uint64_t>(value, static_cast<std::uint64_t>(text_[at_] - '0'), &value);
  }
  const char next = at_ < text_.size() ? text_[at_] : ' ';
  const bool leading_zero = at_ - begin > 1 && text_[begin] == '0';
  if (begin == at_ || leading_zero || next == '.' || next == 'e' || next == 'E') {
    at_ = begin;
    Expected("an unsigned integer");
    return 0;
  }
  if (!fits) {
    at_ = begin;
    Fail(ErrorKind::kBadMetadata, "JSON number does not fit 64 bits", Quote(text_.substr(at_, 40)));
    return 0;
  }
  return value;
}

std::int64_t JsonScanner::Int() {
  const bool negative = ok() && Consume('-');
  const std::uint64_t magnitude = Uint();
  if (magnitude > static_cast<std::uint64_t>(INT64_MAX)) {
    Fail(ErrorKind::kBadMetadata, "JSON number does not fit 63 bits", std::to_string(magnitude));
    return 0;
  }
  const auto value = static_cast<std::int64_t>(magnitude);
  return negative ? -value : value;
}

std::vector<std::int64_t> JsonScanner::Ints() {
  std::vector<std::int64_t> values;
  for (BeginArray(); NextItem();) values.push_back(Int());
  return values;
}

void JsonScanner::SkipNumber() {
  const auto digits = [this] {
    const std::size_t begin = at_;
    while (at_ < text_.size() && IsDigit(text_[at_])) ++at_;
    if (begin == at_) Expected("a digit");
  };
  const auto take = [this](std::string_view any_of) {
    const bool found = at_ < text_.size() && any_of.find(text_[at_]) != std::string_view::npos;
    at_ += found ? 1 : 0;
    return found;
  };
  take("-");
  // A zero stands alone: digits after it are not part of the number, and callers report them.
  if (!take("0")) digits();
  if (take(".")) digits();
  if (take("eE")) {
    take("+-");
    digits();
  }
}

void JsonScanner::SkipWord(std::string_view word) {
  if (text_.substr(at_, word.size()) == word) {
    at_ += word.size();
  } else {
    Expected("a value");
  }
}

void JsonScanner::Skip() {
  std::string key;
  switch (Peek()) {
    case JsonKind::kObject:
      for (BeginObject(); NextMember(key);) Skip();
      return;
    case JsonKind::kArray:
      for (BeginArray(); NextItem();) Skip();
      return;
    case JsonKind::kText:
      (void)Text();
      return;
    case JsonKind::kBool:
      SkipWord(text_[at_] == 't' ? "true" : "false");
      return;
    case JsonKind::kInt:
    case JsonKind::kUint:
    case JsonKind::kFloat:
      SkipNumber();
      return;
    case JsonKind::kNull:
      break;
  }
  if (ok()) SkipWord("null");
}

Status JsonScanner::Finish() {
  SkipSpace();
  if (ok() && at_ < text_.size()) Expected("the end of the document");
  return status_;
}

}  // namespace ckpt
