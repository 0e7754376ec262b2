#include "tools/cli/table.h"

#include <algorithm>
#include <string_view>
#include <utility>

#include "core/base/check.h"
#include "core/base/quote.h"

namespace ckpt::cli {
namespace {

std::size_t Width(std::string_view text) {
  // Continuation bytes of UTF-8 take no column.
  return static_cast<std::size_t>(std::count_if(text.begin(), text.end(), [](char c) {
    return (static_cast<unsigned char>(c) & 0xC0) != 0x80;
  }));
}

}  // namespace

void Table::AddRow(std::vector<std::string> cells) {
  CKPT_CHECK(cells.size() == columns_.size());
  for (std::string& cell : cells) cell = EscapeControls(cell);
  rows_.push_back(std::move(cells));
}

std::string Table::Format() const {
  std::vector<std::string> titles;
  std::vector<std::size_t> widths;
  for (const Column& column : columns_) {
    titles.push_back(column.title);
    widths.push_back(Width(column.title));
  }
  for (const std::vector<std::string>& row : rows_) {
    for (std::size_t i = 0; i < row.size(); ++i) widths[i] = std::max(widths[i], Width(row[i]));
  }
  std::string out;
  const auto append = [&](const std::vector<std::string>& row) {
    for (std::size_t i = 0; i < row.size(); ++i) {
      const std::size_t padding = widths[i] - Width(row[i]);
      if (i > 0) out += "  ";
      if (columns_[i].align == Align::kRight) out.append(padding, ' ');
      out += row[i];
      if (columns_[i].align == Align::kLeft && i + 1 < row.size()) out.append(padding, ' ');
    }
    out += '\n';
  };
  append(titles);
  for (const std::vector<std::string>& row : rows_) append(row);
  return out;
}

}  // namespace ckpt::cli
