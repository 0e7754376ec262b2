#include "core/layout/internal/naming_parser.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <set>
#include <utility>

#include <fmt/format.h>

#include "core/base/text_number.h"
#include "core/layout/internal/check_rule.h"
#include "core/layout/internal/parse_shape.h"
#include "core/layout/internal/table_error.h"
#include "core/layout/internal/table_terms.h"
#include "core/layout/words.h"

namespace ckpt::layout {
namespace {

constexpr std::int64_t kMaxOffset = 1'000'000;  // of a number in a name

}  // namespace

std::optional<Status> NamingParser::Parse(std::string_view word, std::string_view rest) {
  if (word == "object") return ParseObject(rest);
  if (word == "naming") return ParseNaming(rest);
  if (word == "if") return ParseIf(rest);
  if (word == "stack") return ParseStack(rest);
  if (word == "end") return ParseEnd(rest);
  if (word == "prefix") return ParsePrefix(rest);
  if (word == "choice") return ParseChoice(rest, /*is_of_sources=*/false);
  if (word == "source_choice") return ParseChoice(rest, /*is_of_sources=*/true);
  if (word == "strip") return ParseStrip(rest);
  if (word == "extra") return ParseExtraName(rest);
  if (word == "without") return ParseWithout(rest);
  if (word == "ignore") return ParseIgnore(rest, /*is_bookkeeping=*/false);
  if (word == "bookkeeping") return ParseIgnore(rest, /*is_bookkeeping=*/true);
  return std::nullopt;
}

Status NamingParser::Finish() {
  if (enclosing_ || stack_) return TableError("`if` or `stack` has no `end`");
  for (Naming& naming : table_.namings) {
    if (naming.prefixes.empty()) naming.prefixes.emplace_back();
    naming.ignores.insert(naming.ignores.end(), ignores_.begin(), ignores_.end());
  }
  return OkStatus();
}

Result<Naming*> NamingParser::CurrentNaming() {
  if (table_.namings.empty()) return TableError("statement belongs to a naming");
  return &table_.namings.back();
}

Status NamingParser::ParseNaming(std::string_view id) {
  if (enclosing_ || stack_) return TableError("`if` or `stack` has no `end`");
  if (!IsIdentifier(id) || table_.FindNaming(id) != nullptr) {
    return TableError("not a name for a new naming", id);
  }
  table_.namings.emplace_back().id = id;
  said_.clear();
  return OkStatus();
}

// if EXPR … end: around rules that share a condition.
Status NamingParser::ParseIf(std::string_view text) {
  CKPT_RETURN_IF_ERROR(CurrentNaming().status());
  if (enclosing_ || stack_) return TableError("an `if` stands inside another block", text);
  CKPT_ASSIGN_OR_RETURN(enclosing_, Expr::Parse(text));
  return OkStatus();
}

// stack AXIS when EXPR … end: rules that name the axis, `layers.<l>.weight : h`, mean one tensor
// along it where the condition holds: `layers.weight : l h`.
Status NamingParser::ParseStack(std::string_view text) {
  CKPT_RETURN_IF_ERROR(CurrentNaming().status());
  if (enclosing_ || stack_) return TableError("a `stack` stands inside another block", text);
  std::optional<Expr> when;
  CKPT_RETURN_IF_ERROR(TakeCondition(text, when));
  CKPT_RETURN_IF_ERROR(CheckAxis(table_, text));
  if (!when) return TableError("expected AXIS when EXPR", text);
  std::string apart = fmt::format("not ({})", when->text());
  // Extra numbers have names of their own, and so are never stacked.
  if (table_.extra && table_.extra->axis == text && !table_.namings.back().extra_names.empty()) {
    apart += fmt::format(" or {} >= ({})", text, table_.extra->from.text());
  }
  CKPT_ASSIGN_OR_RETURN(Expr otherwise, Expr::Parse(apart));
  stack_.emplace(Stack{.axis = std::string(text),
                       .when = *std::move(when),
                       .otherwise = std::move(otherwise),
                       .apart = {}});
  return OkStatus();
}

Status NamingParser::ParseEnd(std::string_view text) {
  if ((!enclosing_ && !stack_) || !text.empty()) return TableError("`end` closes nothing", text);
  enclosing_.reset();
  if (!stack_) return OkStatus();
  // Behind those that are stacked, so that rules of either form are neighbours.
  CKPT_ASSIGN_OR_RETURN(Naming * naming, CurrentNaming());
  for (TensorRule& rule : stack_->apart) naming->rules.push_back(std::move(rule));
  stack_.reset();
  return OkStatus();
}

// prefix model. | ""
Status NamingParser::ParsePrefix(std::string_view text) {
  CKPT_ASSIGN_OR_RETURN(Naming * naming, CurrentNaming());
  for (std::string_view prefix : SplitTrimmed(text, '|')) {
    if (prefix == "\"\"") prefix = {};
    naming->prefixes.emplace_back(prefix);
  }
  return OkStatus();
}

// choice NAME a | b
Status NamingParser::ParseChoice(std::string_view text, bool is_of_sources) {
  CKPT_ASSIGN_OR_RETURN(Naming * naming, CurrentNaming());
  Choice choice;
  choice.is_of_sources = is_of_sources;
  choice.name = TakeWord(text);
  for (const std::string_view value : SplitTrimmed(text, '|')) choice.values.emplace_back(value);
  if (!IsIdentifier(choice.name) || choice.values.empty() || choice.values.size() > 8 ||
      !std::all_of(choice.values.begin(), choice.values.end(), IsIdentifier)) {
    return TableError("expected NAME a | b", text);
  }
  if (naming->choices.size() == 4) return TableError("a naming has at most four choices", text);
  naming->choices.push_back(std::move(choice));
  return OkStatus();
}

// strip TEXT "reason" when EXPR
Status NamingParser::ParseStrip(std::string_view text) {
  CKPT_ASSIGN_OR_RETURN(Naming * naming, CurrentNaming());
  std::optional<Expr> when;
  CKPT_RETURN_IF_ERROR(TakeCondition(text, when));
  const std::string_view stripped = TakeWord(text);
  if (!when || text.size() < 2 || !text.starts_with('"') || !text.ends_with('"')) {
    return TableError("expected a text, a quoted reason and `when EXPR`", text);
  }
  naming->strips.push_back(
      {std::string(stripped), std::string(text.substr(1, text.size() - 2)), *std::move(when)});
  return OkStatus();
}

// extra FROM = TO {when EXPR}
Status NamingParser::ParseExtraName(std::string_view text) {
  CKPT_RETURN_IF_ERROR(CheckExtraIsNew());
  ExtraName extra;
  CKPT_RETURN_IF_ERROR(TakeCondition(text, extra.when));
  const std::string number = fmt::format("<{}>", table_.extra->axis);
  const std::vector<std::string_view> sides = SplitTrimmed(text, '=');
  if (sides.size() != 2) return TableError("expected FROM = TO", text);
  const auto split = [&](std::string_view name, std::string& before, std::string& behind) {
    const std::size_t at = name.find(number);
    if (at == std::string_view::npos) return TableError("a name has no extra number", name);
    before = name.substr(0, at);
    behind = name.substr(at + number.size());
    return OkStatus();
  };
  CKPT_RETURN_IF_ERROR(split(sides[0], extra.before, extra.behind));
  CKPT_RETURN_IF_ERROR(split(sides[1], extra.before_extra, extra.behind_extra));
  table_.namings.back().extra_names.push_back(std::move(extra));
  return OkStatus();
}

// without extra
Status NamingParser::ParseWithout(std::string_view text) {
  CKPT_RETURN_IF_ERROR(CheckExtraIsNew());
  if (text != "extra") return TableError("expected `without extra`", text);
  table_.namings.back().leaves_out_extra = true;
  return OkStatus();
}

// What a naming says of extra numbers stands before its rules, which depend on it.
Status NamingParser::CheckExtraIsNew() {
  CKPT_ASSIGN_OR_RETURN(const Naming* naming, CurrentNaming());
  if (!table_.extra || naming->leaves_out_extra || !naming->rules.empty()) {
    return TableError("a naming says of extra numbers, which the table has, before its rules");
  }
  return OkStatus();
}

// ignore PATTERN "reason", bookkeeping PATTERN "reason"
Status NamingParser::ParseIgnore(std::string_view text, bool is_bookkeeping) {
  IgnoreRule rule;
  rule.is_bookkeeping = is_bookkeeping;
  rule.pattern = TakeWord(text);
  if (text.size() < 2 || !text.starts_with('"') || !text.ends_with('"')) {
    return TableError("expected a pattern and a quoted reason", text);
  }
  rule.reason = text.substr(1, text.size() - 2);
  CKPT_RETURN_IF_ERROR(SayOnce(
      {is_bookkeeping ? "bookkeeping" : "ignore", rule.pattern, rule.reason}, rule.pattern));
  (table_.namings.empty() ? ignores_ : table_.namings.back().ignores).push_back(std::move(rule));
  return OkStatus();
}

// object NAME : axes = LOGICAL {when expr}
Status NamingParser::ParseObject(std::string_view text) {
  const std::string_view name = TakeWord(text);
  if (!text.starts_with(':')) return TableError("expected NAME : AXES = LOGICAL", text);
  return ParseRule(name, Trim(text.substr(1)), /*is_object=*/true);
}

// NAME : axes {= LOGICAL} {derived {expected}} {when expr}
Status NamingParser::ParseRule(std::string_view name, std::string_view text, bool is_object) {
  CKPT_ASSIGN_OR_RETURN(Naming * naming, CurrentNaming());
  if (!stack_) {
    CKPT_ASSIGN_OR_RETURN(TensorRule rule, ReadRule(name, text, enclosing_, is_object));
    naming->rules.push_back(std::move(rule));
    return OkStatus();
  }
  const std::string number = fmt::format("<{}>.", stack_->axis);
  const std::size_t at = name.find(number);
  if (at == std::string_view::npos) return TableError("a rule of a `stack` names its axis", name);
  CKPT_ASSIGN_OR_RETURN(TensorRule apart, ReadRule(name, text, stack_->otherwise, is_object));
  CKPT_ASSIGN_OR_RETURN(TensorRule stacked, ReadRule(std::string(name).erase(at, number.size()),
                                                     fmt::format("{} {}", stack_->axis, text),
                                                     stack_->when, is_object));
  naming->rules.push_back(std::move(stacked));
  stack_->apart.push_back(std::move(apart));
  return OkStatus();
}

// Under the condition of the block around it.
Result<TensorRule> NamingParser::ReadRule(std::string_view name, std::string_view text,
                                          const std::optional<Expr>& around, bool is_object) {
  TensorRule rule;
  rule.line = line_;
  rule.is_object = is_object;
  CKPT_RETURN_IF_ERROR(ParseName(name, rule));
  std::optional<Expr> when;
  CKPT_RETURN_IF_ERROR(TakeCondition(text, when));
  if (around) rule.when.push_back(*around);
  if (when) rule.when.push_back(*std::move(when));
  constexpr std::string_view kExpected = " derived expected";
  if (text.ends_with(kExpected)) {
    rule.expected = true;
    text.remove_suffix(kExpected.size() - std::string_view(" derived").size());
  }
  if (text.ends_with(" derived")) {
    rule.derived = true;
    text = Trim(text.substr(0, text.size() - 8));
  }
  if (const std::size_t equals = text.find('='); equals != std::string_view::npos) {
    CKPT_ASSIGN_OR_RETURN(rule.logical, NeedLogical(table_, Trim(text.substr(equals + 1))));
    text = Trim(text.substr(0, equals));
  }
  CKPT_ASSIGN_OR_RETURN(ParsedShape shape, ParseShape(table_, text));
  rule.dims = std::move(shape.dims);
  CKPT_RETURN_IF_ERROR(CheckRule(table_, rule));
  CKPT_RETURN_IF_ERROR(SayOnce(rule, shape.tokens, name));
  return rule;
}

// Of whom a rule speaks, what it says of them, and when.
Status NamingParser::SayOnce(const TensorRule& rule, const std::vector<std::string>& shape,
                             std::string_view name) {
  std::vector<std::string> said = {rule.is_object ? "object" : "tensor", std::string(name)};
  said.insert(said.end(), shape.begin(), shape.end());
  if (rule.logical) said.push_back("= " + table_.logicals[*rule.logical].name);
  if (rule.derived) said.emplace_back(rule.expected ? "derived expected" : "derived");
  std::set<std::string> conditions;
  for (const Expr& when : rule.when) conditions.insert("when " + when.text());
  said.insert(said.end(), conditions.begin(), conditions.end());
  return SayOnce(std::move(said), name);
}

// A rule that a naming, or the part of the table before all of them, has already is a slip of
// whoever wrote one of the two.
Status NamingParser::SayOnce(std::vector<std::string> said, std::string_view name) {
  const auto [first, is_new] = said_.emplace(std::move(said), fmt::format("{}:{}", file_, line_));
  if (is_new) return OkStatus();
  return TableError(fmt::format("{} says the same", first->second), name);
}

// model.layers.<l+1>.weight
Status NamingParser::ParseName(std::string_view text, TensorRule& rule) const {
  while (!text.empty()) {
    NamePart part;
    const std::size_t open = std::min(text.find('<'), text.size());
    part.text = text.substr(0, open);
    text.remove_prefix(open);
    if (!text.empty()) {
      const std::size_t close = text.find('>');
      if (close == std::string_view::npos) return TableError("name has no closing '>'", text);
      std::string_view axis = text.substr(1, close - 1);
      text.remove_prefix(close + 1);
      if (const std::size_t plus = axis.find('+'); plus != std::string_view::npos) {
        const std::string_view text_of_number = axis.substr(plus + 1);
        const auto number = ParseNumber<std::int64_t>(text_of_number);
        if (!number || *number > kMaxOffset) return TableError("not an offset", text_of_number);
        part.plus = *number;
        axis = axis.substr(0, plus);
      }
      CKPT_RETURN_IF_ERROR(CheckAxis(table_, axis));
      if (Contains(rule.name_axes, axis)) return TableError("axis is bound twice", axis);
      part.axis = axis;
      rule.name_axes.emplace_back(axis);
    }
    rule.name.push_back(std::move(part));
  }
  return OkStatus();
}

}  // namespace ckpt::layout
