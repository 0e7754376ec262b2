#include "core/layout/words.h"

#include <algorithm>
#include <utility>

#include "core/base/text_number.h"

namespace ckpt::layout {
namespace {

constexpr std::string_view kBlanks = " \t\r";

std::string_view WithoutComment(std::string_view line) {
  bool quoted = false;
  for (std::size_t i = 0; i < line.size(); ++i) {
    if (line[i] == '"') quoted = !quoted;
    if (line[i] == '#' && !quoted) return line.substr(0, i);
  }
  return line;
}

}  // namespace

std::string_view Trim(std::string_view text) {
  const std::size_t begin = text.find_first_not_of(kBlanks);
  if (begin == std::string_view::npos) return {};
  return text.substr(begin, text.find_last_not_of(kBlanks) - begin + 1);
}

std::vector<std::string_view> SplitTrimmed(std::string_view text, char separator) {
  std::vector<std::string_view> parts;
  if (Trim(text).empty()) return parts;
  while (true) {
    const std::size_t at = text.find(separator);
    parts.push_back(Trim(text.substr(0, at)));
    if (at == std::string_view::npos) return parts;
    text.remove_prefix(at + 1);
  }
}

bool IsIdentifier(std::string_view text) {
  const auto is_letter = [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_';
  };
  return !text.empty() && is_letter(text.front()) &&
         std::all_of(text.begin(), text.end(), [&](char c) { return is_letter(c) || IsDigit(c); });
}

bool IsDottedName(std::string_view text) {
  const std::vector<std::string_view> parts = SplitTrimmed(text, '.');
  return !parts.empty() && std::all_of(parts.begin(), parts.end(), IsIdentifier);
}

std::string_view TakeWord(std::string_view& text) {
  text = Trim(text);
  const std::size_t end = std::min(text.find_first_of(kBlanks), text.size());
  const std::string_view word = text.substr(0, end);
  text = Trim(text.substr(end));
  return word;
}

std::vector<TableLine> SplitTableLines(std::string_view text) {
  std::vector<TableLine> lines;
  TableLine current;
  int number = 0;
  while (!text.empty()) {
    ++number;
    const std::size_t end = std::min(text.find('\n'), text.size());
    std::string_view line = Trim(WithoutComment(text.substr(0, end)));
    text.remove_prefix(std::min(end + 1, text.size()));
    const bool continues = line.ends_with('\\');
    if (continues) line = Trim(line.substr(0, line.size() - 1));
    if (current.text.empty()) {
      current.number = number;
    } else {
      current.text += ' ';
    }
    current.text += line;
    if (continues) continue;
    if (!current.text.empty()) lines.push_back(std::exchange(current, {}));
    current = {};
  }
  if (!current.text.empty()) lines.push_back(std::move(current));
  return lines;
}

}  // namespace ckpt::layout
