#include "converters/families/family_registry.h"

#include <set>
#include <string>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "converters/families/embedded_tables.h"
#include "core/base/quote.h"

namespace ckpt {
namespace {

using layout::LayoutTable;

// A file without a `family` line is there to be included.
bool IsFamily(std::string_view text) {
  return text.starts_with("family ") || text.find("\nfamily ") != std::string_view::npos;
}

Result<std::vector<LayoutTable>> ParseBuiltIn() {
  std::vector<LayoutTable> tables;
  for (const auto& [file, text] : EmbeddedTables()) {
    if (!IsFamily(text)) continue;
    Result<LayoutTable> table = LoadMapping(text, file);
    if (!table.ok()) {
      Problem problem = table.status().first();
      problem.kind = ErrorKind::kInternal;
      return Status(std::move(problem));
    }
    tables.push_back(std::move(table).value());
  }
  return tables;
}

}  // namespace

Result<std::span<const LayoutTable>> BuiltInFamilies() {
  static const Result<std::vector<LayoutTable>> tables = ParseBuiltIn();
  if (!tables.ok()) return tables.status();
  return std::span<const LayoutTable>(*tables);
}

Result<const LayoutTable*> FindFamily(const layout::Configuration& config) {
  CKPT_ASSIGN_OR_RETURN(const std::span<const LayoutTable> families, BuiltInFamilies());
  const layout::ConfigurationNames names(config);
  for (const LayoutTable& table : families) {
    if (!table.match) continue;
    CKPT_ASSIGN_OR_RETURN(const bool matches, table.match->EvaluateBool(names));
    if (matches) return &table;
  }
  const auto model_type = config.find("model_type");
  std::set<std::string> covered;
  for (const LayoutTable& table : families) {
    if (!table.match) continue;
    for (std::string& text : table.match->texts()) covered.insert(std::move(text));
  }
  return Error(ErrorKind::kUnsupported, "no layout table describes this model")
      .Actual("model_type " +
              (model_type == config.end() ? "is absent" : FormatValue(model_type->second)))
      .Hint(fmt::format(
          "covered are {}; ckpt-convert takes the name of one with --model-type NAME, or a "
          "table with --mapping FILE",
          fmt::join(covered, ", ")));
}

Result<LayoutTable> LoadMapping(std::string_view text, std::string_view name) {
  return layout::ParseLayoutTable(text, name, ReadBuiltInTable);
}

Result<std::string> ReadBuiltInTable(std::string_view name) {
  for (const auto& [file, text] : EmbeddedTables()) {
    if (file == name) return std::string(text);
  }
  return Error(ErrorKind::kNotFound, "no such built-in table").Actual(Quote(name));
}

}  // namespace ckpt
