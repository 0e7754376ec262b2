#include "converters/config/translation_table.h"

#include <algorithm>
#include <optional>

#include <fmt/format.h>

#include "converters/config/internal/embedded_translations.h"
#include "converters/families/family_registry.h"
#include "core/base/quote.h"
#include "core/layout/words.h"

namespace ckpt {
namespace {

constexpr int kMaxIncludeDepth = 8;

template <typename Line>
bool Has(const std::vector<Line>& lines, std::string_view name) {
  return std::any_of(lines.begin(), lines.end(), [&](const Line& l) { return l.name == name; });
}

template <typename Line>
Result<NamedValues> EvaluateAll(const std::vector<Line>& lines, const layout::DefinedNames& names) {
  NamedValues values;
  for (const Line& line : lines) {
    Result<layout::Value> value = line.value.Evaluate(names);
    if (!value.ok()) {
      // The line's name belongs to the target's program. The user knows the names of the source, so
      // the message gives them, too.
      return std::move(value).status().While(
          fmt::format("translating {}, with {}", line.name, names.Explain(line.value)));
    }
    values.emplace_back(line.name, std::move(value).value());
  }
  return values;
}

// Returns the quoted text at the end of `text`, and removes it and the blanks before it. There may
// be other quoted texts before it.
std::optional<std::string_view> TakeLastQuoted(std::string_view& text) {
  const std::size_t open =
      text.size() < 2 ? std::string_view::npos : text.rfind('"', text.size() - 2);
  if (!text.ends_with('"') || open == std::string_view::npos) return std::nullopt;
  const std::string_view quoted = text.substr(open + 1, text.size() - open - 2);
  text = layout::Trim(text.substr(0, open));
  return quoted;
}

// A table of this folder, or one of the families'.
Result<std::string> ReadBuiltIn(std::string_view name) {
  for (const auto& [file, text] : EmbeddedTranslations()) {
    if (file == name) return std::string(text);
  }
  return ReadBuiltInTable(name);
}

layout::Configuration PresentOf(NamedValues values) {
  layout::Configuration present;
  for (auto& [name, value] : values) {
    if (!value.is_null()) present.emplace(name, std::move(value));
  }
  return present;
}

}  // namespace

Result<TranslationTable> TranslationTable::Parse(std::string_view text, std::string_view name,
                                                 const layout::IncludeResolver& includes,
                                                 const layout::Definitions& facts) {
  TranslationTable table;
  table.definitions_ = facts;
  CKPT_RETURN_IF_ERROR(table.ParseInto(text, name, includes, 0));
  return table;
}

Status TranslationTable::ParseInto(std::string_view text, std::string_view name,
                                   const layout::IncludeResolver& includes, int depth) {
  if (depth > kMaxIncludeDepth) {
    return Error(ErrorKind::kResource, "includes are nested too deeply").File(name);
  }
  for (const layout::TableLine& line : layout::SplitTableLines(text)) {
    if (Status status = ParseLine(line.text, includes, depth); !status.ok()) {
      return std::move(status).File(fmt::format("{}:{}", name, line.number));
    }
  }
  return OkStatus();
}

Status TranslationTable::ParseRequirement(std::string_view text) {
  std::optional<std::string_view> last = TakeLastQuoted(text);
  std::string expected;
  if (constexpr std::string_view kExpect = " expect"; last && text.ends_with(kExpect)) {
    expected = *last;
    text = layout::Trim(text.substr(0, text.size() - kExpect.size()));
    last = TakeLastQuoted(text);
  }
  if (!last || text.empty()) {
    return Error(ErrorKind::kBadMetadata, "expected a condition and a quoted message");
  }
  CKPT_ASSIGN_OR_RETURN(layout::Expr condition, layout::Expr::Parse(text));
  requirements_.push_back({std::move(condition), std::string(*last), std::move(expected)});
  return OkStatus();
}

Status TranslationTable::ParseLine(std::string_view line, const layout::IncludeResolver& includes,
                                   int depth) {
  std::string_view rest = line;
  const std::string_view word = layout::TakeWord(rest);
  if (word == "let") return definitions_.Add(rest);
  if (word == "include") {
    if (!includes) return Error(ErrorKind::kBadMetadata, "this table may not include files");
    CKPT_ASSIGN_OR_RETURN(const std::string text, includes(rest));
    return ParseInto(text, rest, includes, depth + 1);
  }
  if (word == "require") return ParseRequirement(rest);
  for (const auto& [statement, names] :
       {std::pair("one_way", &one_way_), std::pair("closed", &closed_),
        std::pair("neutral", &neutral_), std::pair("nullable", &nullable_)}) {
    if (word != statement) continue;
    while (!rest.empty()) names->emplace(layout::TakeWord(rest));
    return OkStatus();
  }
  const bool stores = word == "store";
  const std::string_view name = stores ? layout::TakeWord(rest) : word;
  if (!layout::IsDottedName(name) || !rest.starts_with('=')) {
    return Error(ErrorKind::kBadMetadata, "line is not a statement")
        .Expected(
            "let, require, include, one_way, closed, neutral, nullable, or [store] NAME = EXPR")
        .Actual(Quote(line));
  }
  std::vector<Line>& lines = stores ? stores_ : lines_;
  if (Has(lines, name)) {
    return Error(ErrorKind::kBadMetadata, "name is written twice").Actual(Quote(name));
  }
  CKPT_ASSIGN_OR_RETURN(layout::Expr value, layout::Expr::Parse(layout::Trim(rest.substr(1))));
  lines.push_back({std::string(name), std::move(value)});
  return OkStatus();
}

std::set<std::string> TranslationTable::NamesRead() const {
  std::set<std::string> read;
  const auto add = [&read](const layout::Expr& expr) {
    for (std::string& name : expr.names()) read.insert(std::move(name));
  };
  for (const layout::Definition& definition : definitions_.all()) add(definition.body);
  for (const Requirement& requirement : requirements_) add(requirement.condition);
  for (const Line& line : lines_) add(line.value);
  return read;
}

Status TranslationTable::CheckClosed(const layout::Configuration& config) const {
  Status unread;
  if (closed_.empty()) return unread;
  const std::set<std::string> read = NamesRead();
  for (const auto& [name, value] : config) {
    const std::string object = name.substr(0, name.find('.'));
    const bool is_fine = value.is_null() || !closed_.contains(object) || read.contains(name) ||
                         neutral_.contains(name);
    if (is_fine) continue;
    unread.Add(Error(ErrorKind::kUnsupported, name + " may change the numbers, and is not known")
                   .Actual(layout::FormatValue(value)));
  }
  return unread;
}

Status TranslationTable::CheckNulls(const layout::Configuration& config) const {
  Status nulls;
  if (nullable_.empty()) return nulls;
  const std::set<std::string> read = NamesRead();
  for (const auto& [name, value] : config) {
    if (!value.is_null() || nullable_.contains(name) || !read.contains(name)) continue;
    nulls.Add(Error(ErrorKind::kUnsupported, name + " is null")
                  .Expected("a value, or no such key")
                  .Actual("null"));
  }
  return nulls;
}

Status TranslationTable::CheckRequirements(const layout::Configuration& config,
                                           const layout::DefinedNames& names) const {
  Status unmet;
  for (const Requirement& requirement : requirements_) {
    CKPT_ASSIGN_OR_RETURN(const bool holds, requirement.condition.EvaluateBool(names));
    if (!holds) {
      unmet.Add(Error(ErrorKind::kUnsupported, requirement.otherwise)
                    .Expected(requirement.expected)
                    .Actual(names.Explain(requirement.condition)));
    }
  }
  unmet.Add(CheckClosed(config));
  unmet.Add(CheckNulls(config));
  return unmet;
}

Result<NamedValues> TranslationTable::Translate(const layout::Configuration& config) const {
  const layout::DefinedNames names(definitions_, config);
  CKPT_RETURN_IF_ERROR(CheckRequirements(config, names));
  return EvaluateAll(lines_, names);
}

Result<layout::Configuration> TranslationTable::TranslatePresent(
    const layout::Configuration& config) const {
  CKPT_ASSIGN_OR_RETURN(NamedValues values, Translate(config));
  return PresentOf(std::move(values));
}

Result<layout::Configuration> TranslationTable::TranslateUnchecked(
    const layout::Configuration& config) const {
  CKPT_ASSIGN_OR_RETURN(NamedValues values,
                        EvaluateAll(lines_, layout::DefinedNames(definitions_, config)));
  return PresentOf(std::move(values));
}

Result<NamedValues> TranslationTable::Invert(const layout::Configuration& output) const {
  CKPT_ASSIGN_OR_RETURN(NamedValues input,
                        EvaluateAll(stores_, layout::DefinedNames(definitions_, output)));
  for (const Line& line : lines_) {
    const auto found = output.find(line.name);
    if (found != output.end() && !Has(stores_, line.name)) input.push_back(*found);
  }
  return input;
}

Result<TranslationTable> LoadTranslationOf(const layout::Configuration& hf_config,
                                           std::string_view name) {
  CKPT_ASSIGN_OR_RETURN(const layout::Definitions* const facts, FactsOf(hf_config));
  return LoadBuiltInTranslation(name, *facts);
}

Result<TranslationTable> LoadBuiltInTranslation(std::string_view name,
                                                const layout::Definitions& facts) {
  for (const auto& [file, text] : EmbeddedTranslations()) {
    if (file == name) return TranslationTable::Parse(text, file, ReadBuiltIn, facts);
  }
  return Error(ErrorKind::kInternal, "no such built-in table").Actual(Quote(name));
}

}  // namespace ckpt
