// Rows of text with aligned columns.
#ifndef CKPT_TOOLS_CLI_TABLE_H_
#define CKPT_TOOLS_CLI_TABLE_H_

#include <cstdint>
#include <string>
#include <vector>

namespace ckpt::cli {

enum class Align : std::uint8_t { kLeft, kRight };

struct Column {
  std::string title;
  Align align = Align::kLeft;
};

// Cells are escaped (`EscapeControls`), so that names from a file cannot control the terminal.
// Widths count code points.
class Table {
 public:
  explicit Table(std::vector<Column> columns) : columns_(std::move(columns)) {}

  // REQUIRES: one cell per column.
  void AddRow(std::vector<std::string> cells);
  [[nodiscard]] bool empty() const { return rows_.empty(); }
  // Title line and rows, two spaces between columns, no trailing spaces.
  [[nodiscard]] std::string Format() const;

 private:
  std::vector<Column> columns_;
  std::vector<std::vector<std::string>> rows_;
};

}  // namespace ckpt::cli

#endif  // CKPT_TOOLS_CLI_TABLE_H_
