// Cuts the lines of table files into words.
#ifndef CKPT_CORE_LAYOUT_WORDS_H_
#define CKPT_CORE_LAYOUT_WORDS_H_

#include <string>
#include <string_view>
#include <vector>

namespace ckpt::layout {

[[nodiscard]] std::string_view Trim(std::string_view text);
// The parts between separators, trimmed. Blank text gives none.
[[nodiscard]] std::vector<std::string_view> SplitTrimmed(std::string_view text, char separator);
// [A-Za-z_][A-Za-z0-9_]*
[[nodiscard]] bool IsIdentifier(std::string_view text);
// Identifiers joined by '.'.
[[nodiscard]] bool IsDottedName(std::string_view text);
// Removes the first word from `text` and returns it. `text` keeps the rest, trimmed.
[[nodiscard]] std::string_view TakeWord(std::string_view& text);

// One line of a table without its comment. A line that ends in '\' is joined with the next.
struct TableLine {
  int number = 0;  // 1-based, the first physical line
  std::string text;
};
// Without blank lines. '#' outside double quotes starts a comment.
[[nodiscard]] std::vector<TableLine> SplitTableLines(std::string_view text);

}  // namespace ckpt::layout

#endif  // CKPT_CORE_LAYOUT_WORDS_H_
