#include "core/layout/layout_table.h"

#include <utility>

#include <fmt/format.h>

#include "core/layout/internal/naming_parser.h"
#include "core/layout/internal/parse_axes.h"
#include "core/layout/internal/table_error.h"
#include "core/layout/words.h"

namespace ckpt::layout {
namespace {

constexpr int kMaxIncludeDepth = 8;

class TableParser {
 public:
  explicit TableParser(const IncludeResolver& includes) : includes_(includes), namings_(table_) {}

  Status ParseFile(std::string_view text, std::string_view file, int depth) {
    if (depth > kMaxIncludeDepth) {
      return Error(ErrorKind::kResource, "includes are nested too deeply").File(file);
    }
    for (const TableLine& line : SplitTableLines(text)) {
      namings_.StandAt(file, line.number);
      if (Status status = ParseLine(line.text, depth); !status.ok()) {
        return std::move(status).File(fmt::format("{}:{}", file, line.number));
      }
    }
    return OkStatus();
  }

  Result<LayoutTable> Finish() {
    if (table_.name.empty()) return TableError("table names no family");
    CKPT_RETURN_IF_ERROR(namings_.Finish());
    return std::move(table_);
  }

 private:
  Status ParseLine(std::string_view line, int depth) {
    std::string_view rest = line;
    const std::string_view word = TakeWord(rest);
    if (rest.starts_with(':')) return namings_.ParseRule(word, Trim(rest.substr(1)));
    if (word == "let") return table_.definitions.Add(rest);
    if (word == "dim") return ParseDim(rest, table_);
    if (word == "split") return ParseSplit(rest, table_);
    if (word == "logical") return ParseLogical(rest, table_);
    if (word == "extra" && table_.namings.empty()) return ParseExtraNumbers(rest, table_);
    if (word == "family") {
      if (!table_.name.empty() || !IsIdentifier(rest)) {
        return TableError("expected one family name", rest);
      }
      table_.name = rest;
      return OkStatus();
    }
    if (word == "match") {
      CKPT_ASSIGN_OR_RETURN(table_.match, Expr::Parse(rest));
      return OkStatus();
    }
    if (word == "include") {
      if (!includes_) return TableError("this table may not include files", rest);
      CKPT_ASSIGN_OR_RETURN(const std::string text, includes_(rest));
      return ParseFile(text, rest, depth + 1);
    }
    if (std::optional<Status> parsed = namings_.Parse(word, rest)) return *std::move(parsed);
    return TableError("line is not a statement", word)
        .Expected(
            "family, match, let, dim, split, extra, logical, naming, prefix, choice, "
            "source_choice, strip, without, ignore, bookkeeping, object, include, if, stack, end, "
            "or NAME : AXES");
  }

  const IncludeResolver& includes_;
  LayoutTable table_;
  NamingParser namings_;
};

}  // namespace

const Naming* LayoutTable::FindNaming(std::string_view id) const {
  for (const Naming& naming : namings) {
    if (naming.id == id) return &naming;
  }
  return nullptr;
}

std::vector<std::string> LayoutTable::Atoms(std::string_view axis) const {
  const auto split = splits.find(axis);
  if (split == splits.end()) return {std::string(axis)};
  return split->second;
}

Result<LayoutTable> ParseLayoutTable(std::string_view text, std::string_view name,
                                     const IncludeResolver& includes) {
  TableParser parser(includes);
  CKPT_RETURN_IF_ERROR(parser.ParseFile(text, name, 0));
  Result<LayoutTable> table = parser.Finish();
  if (!table.ok()) return std::move(table).status().File(name);
  return table;
}

}  // namespace ckpt::layout
