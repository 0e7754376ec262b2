#include "converters/families/family_registry.h"

#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "converters/families/internal/embedded_tables.h"
#include "core/base/mutex.h"
#include "core/base/quote.h"
#include "core/layout/words.h"

namespace ckpt {
namespace {

using layout::LayoutTable;

constexpr std::string_view kFactsFile = "decoder.facts";

// An error in a file of the source tree is not the user's.
Status AsInternal(const Status& status) {
  Problem problem = status.first();
  problem.kind = ErrorKind::kInternal;
  return Status(std::move(problem));
}

Result<std::vector<Family>> ParseBuiltIn() {
  std::vector<Family> families;
  for (const auto& [file, text] : EmbeddedTables()) {
    if (!file.ends_with(".family")) continue;  // there to be included
    Result<Family> family = ParseFamily(text, file);
    if (!family.ok()) return AsInternal(family.status());
    families.push_back(std::move(family).value());
  }
  return families;
}

// nullptr if none matches.
Result<const Family*> MatchingFamily(const layout::Configuration& config) {
  CKPT_ASSIGN_OR_RETURN(const std::span<const Family> families, BuiltInFamilies());
  const layout::ConfigurationNames names(config);
  for (const Family& family : families) {
    CKPT_ASSIGN_OR_RETURN(const bool matches, family.match->EvaluateBool(names));
    if (matches) return &family;
  }
  return static_cast<const Family*>(nullptr);
}

}  // namespace

Result<std::span<const Family>> BuiltInFamilies() {
  static const Result<std::vector<Family>> families = ParseBuiltIn();
  if (!families.ok()) return families.status();
  return std::span<const Family>(*families);
}

Result<const LayoutTable*> LayoutOf(const Family& family) {
  static Mutex mutex;
  static std::map<std::string, Result<LayoutTable>> layouts;  // by the family's name
  const MutexLock lock(mutex);
  auto at = layouts.find(family.name);
  if (at == layouts.end()) {
    at = layouts.emplace(family.name, ParseLayout(family, ReadBuiltInTable)).first;
  }
  if (!at->second.ok()) return AsInternal(at->second.status());
  return &*at->second;
}

Result<const LayoutTable*> FindFamily(const layout::Configuration& config) {
  CKPT_ASSIGN_OR_RETURN(const Family* const family, MatchingFamily(config));
  if (family != nullptr) return LayoutOf(*family);
  const auto model_type = config.find("model_type");
  std::set<std::string> covered;
  CKPT_ASSIGN_OR_RETURN(const std::span<const Family> families, BuiltInFamilies());
  for (const Family& other : families) {
    for (std::string& text : other.match->texts()) covered.insert(std::move(text));
  }
  return Error(ErrorKind::kUnsupported, "no layout table describes this model")
      .Actual("model_type " +
              (model_type == config.end() ? "is absent" : FormatValue(model_type->second)))
      .Hint(fmt::format(
          "covered are {}; ckpt-convert takes the name of one with --model-type NAME, or a "
          "table with --mapping FILE",
          fmt::join(covered, ", ")));
}

Result<const layout::Definitions*> FactsOf(const layout::Configuration& config) {
  CKPT_ASSIGN_OR_RETURN(const Family* const family, MatchingFamily(config));
  if (family != nullptr) {
    CKPT_ASSIGN_OR_RETURN(const LayoutTable* const table, LayoutOf(*family));
    return &table->definitions;
  }
  static const Result<LayoutTable> any =
      layout::ParseLayoutTable("family any\ninclude decoder.facts\n", "any", ReadBuiltInTable);
  if (!any.ok()) return any.status();
  return &any->definitions;
}

Status ReadAsClass(layout::Configuration& config) {
  CKPT_ASSIGN_OR_RETURN(const Family* const family, MatchingFamily(config));
  if (family == nullptr) return OkStatus();
  CKPT_ASSIGN_OR_RETURN(const std::span<const Family> families, BuiltInFamilies());
  for (const Family& other : families) {
    for (const std::string& key : other.reads) {
      if (!family->reads.contains(key)) config.erase(key);
    }
  }
  layout::Configuration defaults;
  const layout::ConfigurationNames names(config);
  for (const auto& [key, expr] : family->defaults) {
    CKPT_ASSIGN_OR_RETURN(layout::Value value, expr.Evaluate(names));
    if (!value.is_null()) defaults.emplace(key, std::move(value));
  }
  config.merge(defaults);  // a null in the configuration stays one
  return OkStatus();
}

Result<LayoutTable> LoadMapping(std::string_view text, std::string_view name,
                                const layout::Configuration& config) {
  std::set<std::string> defined;
  for (const layout::TableLine& line : layout::SplitTableLines(text)) {
    if (std::optional<std::string> fact = NameOfClassFact(line.text)) {
      defined.insert(*std::move(fact));
    }
  }
  CKPT_ASSIGN_OR_RETURN(const Family* const family, MatchingFamily(config));
  std::string of_class;
  if (family != nullptr) {
    for (const auto& [fact, definition] : family->class_facts) {
      if (!defined.contains(fact)) of_class += fmt::format("let {}\n", definition);
    }
  }
  const auto read = [&](std::string_view file) -> Result<std::string> {
    CKPT_ASSIGN_OR_RETURN(std::string included, ReadBuiltInTable(file));
    return file == kFactsFile ? of_class + included : included;
  };
  return layout::ParseLayoutTable(text, name, read);
}

Result<std::string> ReadBuiltInTable(std::string_view name) {
  for (const auto& [file, text] : EmbeddedTables()) {
    if (file == name) return std::string(text);
  }
  return Error(ErrorKind::kNotFound, "no such built-in table").Actual(Quote(name));
}

}  // namespace ckpt
