#include "converters/families/family_file.h"

#include <fmt/format.h>

#include "core/base/quote.h"
#include "core/layout/words.h"

namespace ckpt {
namespace {

// KEY = EXPR
Status ParseDefault(std::string_view text, Family& family) {
  const std::string_view key = layout::TakeWord(text);
  if (!layout::IsDottedName(key) || !text.starts_with('=')) {
    return Error(ErrorKind::kBadMetadata, "expected default KEY = EXPR").Actual(Quote(key));
  }
  CKPT_ASSIGN_OR_RETURN(layout::Expr value, layout::Expr::Parse(layout::Trim(text.substr(1))));
  family.defaults.emplace_back(key, std::move(value));
  return OkStatus();
}

}  // namespace

std::optional<std::string> NameOfClassFact(std::string_view line) {
  if (layout::TakeWord(line) != "let" || !line.starts_with("class_")) return std::nullopt;
  return std::string(layout::TakeWord(line));
}

Result<Family> ParseFamily(std::string_view text, std::string_view name) {
  Family family;
  family.file = name;
  int lines = 0;  // of layout_text
  for (const layout::TableLine& line : layout::SplitTableLines(text)) {
    std::string_view rest = line.text;
    const std::string_view word = layout::TakeWord(rest);
    if (word == "default") {
      if (Status status = ParseDefault(rest, family); !status.ok()) {
        return std::move(status).File(fmt::format("{}:{}", name, line.number));
      }
    } else if (word == "family") {
      family.name = rest;
    } else if (word == "reads") {
      while (!rest.empty()) family.reads.emplace(layout::TakeWord(rest));
    } else {
      if (std::optional<std::string> fact = NameOfClassFact(line.text)) {
        family.class_facts.emplace_back(*std::move(fact), rest);
      }
      for (; lines < line.number - 1; ++lines) family.layout_text += '\n';
      family.layout_text.append(line.text).append("\n");
      ++lines;
    }
    if (word == "match") {
      Result<layout::Expr> match = layout::Expr::Parse(rest);
      if (!match.ok()) {
        return std::move(match).status().File(fmt::format("{}:{}", name, line.number));
      }
      family.match = std::move(match).value();
    }
  }
  if (!family.match || family.name.empty()) {
    return Error(ErrorKind::kBadMetadata, "a family has no name, or no match").File(name);
  }
  return family;
}

Result<layout::LayoutTable> ParseLayout(const Family& family,
                                        const layout::IncludeResolver& includes) {
  return layout::ParseLayoutTable(family.layout_text, family.file, includes);
}

}  // namespace ckpt
