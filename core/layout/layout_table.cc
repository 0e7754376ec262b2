#include "core/layout/layout_table.h"

#include <algorithm>
#include <charconv>
#include <map>
#include <set>
#include <utility>

#include <fmt/format.h>

#include "core/layout/internal/check_rule.h"
#include "core/layout/internal/table_error.h"
#include "core/layout/words.h"

namespace ckpt::layout {
namespace {

constexpr int kMaxIncludeDepth = 8;
constexpr std::string_view kCountedBy = " counted by ";

// Splits "a b {x: c | y} (d e)" into words and punctuation.
std::vector<std::string> ShapeTokens(std::string_view text) {
  std::vector<std::string> tokens;
  std::string word;
  const auto flush = [&] {
    if (!word.empty()) tokens.push_back(std::exchange(word, {}));
  };
  for (const char c : text) {
    if (c == ' ' || c == '\t') {
      flush();
    } else if (std::string_view("(){}|:").find(c) != std::string_view::npos) {
      flush();
      tokens.emplace_back(1, c);
    } else {
      word += c;
    }
  }
  flush();
  return tokens;
}

class TableParser {
 public:
  explicit TableParser(const IncludeResolver& includes) : includes_(includes) {}

  Status ParseFile(std::string_view text, std::string_view file, int depth) {
    if (depth > kMaxIncludeDepth) {
      return Error(ErrorKind::kResource, "includes are nested too deeply").File(file);
    }
    for (const TableLine& line : SplitTableLines(text)) {
      file_ = file;
      line_ = line.number;
      if (Status status = ParseLine(line.text, depth); !status.ok()) {
        return std::move(status).File(fmt::format("{}:{}", file, line.number));
      }
    }
    return OkStatus();
  }

  Result<LayoutTable> Finish() {
    if (table_.name.empty()) return TableError("table names no family");
    if (enclosing_ || stack_) return TableError("`if` or `stack` has no `end`");
    for (Naming& naming : table_.namings) {
      if (naming.prefixes.empty()) naming.prefixes.emplace_back();
      naming.ignores.insert(naming.ignores.end(), ignores_.begin(), ignores_.end());
    }
    return std::move(table_);
  }

 private:
  Status ParseLine(std::string_view line, int depth) {
    std::string_view rest = line;
    const std::string_view word = TakeWord(rest);
    if (rest.starts_with(':')) return ParseRule(word, Trim(rest.substr(1)));
    if (word == "let") return table_.definitions.Add(rest);
    if (word == "dim") return ParseDim(rest);
    if (word == "split") return ParseSplit(rest);
    if (word == "logical") return ParseLogical(rest);
    if (word == "object") return ParseObject(rest);
    if (word == "naming") return ParseNaming(rest);
    if (word == "if") return ParseIf(rest);
    if (word == "stack") return ParseStack(rest);
    if (word == "end") return ParseEnd(rest);
    if (word == "prefix") return ParsePrefix(rest);
    if (word == "choice") return ParseChoice(rest, /*is_of_sources=*/false);
    if (word == "source_choice") return ParseChoice(rest, /*is_of_sources=*/true);
    if (word == "strip") return ParseStrip(rest);
    if (word == "extra") return ParseExtra(rest);
    if (word == "without") return ParseWithout(rest);
    if (word == "ignore") return ParseIgnore(rest, /*is_bookkeeping=*/false);
    if (word == "bookkeeping") return ParseIgnore(rest, /*is_bookkeeping=*/true);
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
    return TableError("line is not a statement", word)
        .Expected(
            "family, match, let, dim, split, extra, logical, naming, prefix, choice, "
            "source_choice, strip, without, "
            "ignore, bookkeeping, object, include, if, stack, end, or NAME : AXES");
  }

  // dim NAME = expr {min N}
  Status ParseDim(std::string_view text) {
    AxisExtent extent;
    if (const std::size_t at = text.rfind(" min "); at != std::string_view::npos) {
      const std::string_view number = Trim(text.substr(at + 5));
      const auto parsed = std::from_chars(number.data(), number.data() + number.size(), extent.min);
      if (parsed.ec == std::errc() && parsed.ptr == number.data() + number.size()) {
        text = text.substr(0, at);
      }
    }
    CKPT_RETURN_IF_ERROR(table_.definitions.Add(text));
    const Definition& definition = table_.definitions.all().back();
    if (!definition.params.empty()) return TableError("a dim takes no parameters", text);
    extent.definition = definition.name;
    table_.axes.emplace(definition.name, extent);
    return OkStatus();
  }

  // split AXIS = PART PART …
  Status ParseSplit(std::string_view text) {
    const std::vector<std::string_view> sides = SplitTrimmed(text, '=');
    if (sides.size() != 2) return TableError("expected AXIS = PARTS", text);
    CKPT_RETURN_IF_ERROR(CheckAxis(sides[0]));
    for (const auto& [axis, parts] : table_.splits) {
      if (Contains(parts, sides[0])) return TableError("a part is not split again", sides[0]);
    }
    std::vector<std::string> parts;
    std::string_view rest = sides[1];
    while (!rest.empty()) parts.emplace_back(TakeWord(rest));
    for (const std::string& part : parts) {
      CKPT_RETURN_IF_ERROR(CheckAxis(part));
      if (part == sides[0] || table_.splits.contains(part)) {
        return TableError("an axis is split into unsplit axes only", part);
      }
    }
    if (parts.size() < 2 || !table_.splits.emplace(sides[0], std::move(parts)).second) {
      return TableError("an axis is split once, into two parts or more", text);
    }
    return OkStatus();
  }

  // logical NAME [axes] {when expr}
  Status ParseLogical(std::string_view text) {
    if (!table_.namings.empty()) return TableError("logical tensors stand before the namings");
    LogicalTensor logical;
    CKPT_RETURN_IF_ERROR(TakeCondition(text, logical.when));
    logical.name = TakeWord(text);
    if (!IsDottedName(logical.name) || logical.name == "zero" || FindLogical(logical.name)) {
      return TableError("not a name for a new logical tensor", logical.name);
    }
    if (!text.starts_with('[') || !text.ends_with(']')) {
      return TableError("expected axes in brackets", text);
    }
    std::string_view axes = Trim(text.substr(1, text.size() - 2));
    while (!axes.empty()) {
      const std::string_view axis = TakeWord(axes);
      CKPT_RETURN_IF_ERROR(CheckAxis(axis));
      if (Contains(logical.axes, axis)) return TableError("axis is listed twice", axis);
      logical.axes.emplace_back(axis);
    }
    if (logical.when) {
      for (const std::string& name : logical.when->names()) {
        if (!Contains(logical.axes, name)) continue;
        if (logical.when_axis && *logical.when_axis != name) {
          return TableError("a condition may read one axis only", name);
        }
        logical.when_axis = name;
      }
    }
    table_.logicals.push_back(std::move(logical));
    return OkStatus();
  }

  Status ParseNaming(std::string_view id) {
    if (enclosing_ || stack_) return TableError("`if` or `stack` has no `end`");
    if (!IsIdentifier(id) || table_.FindNaming(id) != nullptr) {
      return TableError("not a name for a new naming", id);
    }
    table_.namings.emplace_back().id = id;
    said_.clear();
    return OkStatus();
  }

  // if EXPR … end: around rules that share a condition.
  Status ParseIf(std::string_view text) {
    CKPT_RETURN_IF_ERROR(CurrentNaming().status());
    if (enclosing_ || stack_) return TableError("an `if` stands inside another block", text);
    CKPT_ASSIGN_OR_RETURN(enclosing_, Expr::Parse(text));
    return OkStatus();
  }

  // stack AXIS when EXPR … end: rules that name the axis, `layers.<l>.weight : h`, mean one tensor
  // along it where the condition holds: `layers.weight : l h`.
  Status ParseStack(std::string_view text) {
    CKPT_RETURN_IF_ERROR(CurrentNaming().status());
    if (enclosing_ || stack_) return TableError("a `stack` stands inside another block", text);
    std::optional<Expr> when;
    CKPT_RETURN_IF_ERROR(TakeCondition(text, when));
    CKPT_RETURN_IF_ERROR(CheckAxis(text));
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

  Status ParseEnd(std::string_view text) {
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
  Status ParsePrefix(std::string_view text) {
    CKPT_ASSIGN_OR_RETURN(Naming * naming, CurrentNaming());
    for (std::string_view prefix : SplitTrimmed(text, '|')) {
      if (prefix == "\"\"") prefix = {};
      naming->prefixes.emplace_back(prefix);
    }
    return OkStatus();
  }

  // choice NAME a | b
  Status ParseChoice(std::string_view text, bool is_of_sources) {
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
  Status ParseStrip(std::string_view text) {
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

  // Before the namings: extra AXIS from EXPR counted by KEY.
  // In a naming: extra FROM = TO {when EXPR}
  Status ParseExtra(std::string_view text) {
    return table_.namings.empty() ? ParseExtraNumbers(text) : ParseExtraName(text);
  }

  Status ParseExtraNumbers(std::string_view text) {
    const std::string_view axis = TakeWord(text);
    CKPT_RETURN_IF_ERROR(CheckAxis(axis));
    const std::size_t counted = text.find(kCountedBy);
    if (table_.extra || table_.Atoms(axis).size() > 1 || !text.starts_with("from ") ||
        counted == std::string_view::npos) {
      return TableError("expected one line AXIS from EXPR counted by KEY", text);
    }
    const std::string_view key = Trim(text.substr(counted + kCountedBy.size()));
    if (!IsIdentifier(key)) return TableError("not a key of a configuration", key);
    CKPT_ASSIGN_OR_RETURN(Expr from, Expr::Parse(Trim(text.substr(5, counted - 5))));
    table_.extra.emplace(ExtraNumbers{std::string(axis), std::move(from), std::string(key)});
    return OkStatus();
  }

  Status ParseExtraName(std::string_view text) {
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
  Status ParseWithout(std::string_view text) {
    CKPT_RETURN_IF_ERROR(CheckExtraIsNew());
    if (text != "extra") return TableError("expected `without extra`", text);
    table_.namings.back().leaves_out_extra = true;
    return OkStatus();
  }

  // What a naming says of extra numbers stands before its rules, which depend on it.
  Status CheckExtraIsNew() {
    CKPT_ASSIGN_OR_RETURN(const Naming* naming, CurrentNaming());
    if (!table_.extra || naming->leaves_out_extra || !naming->rules.empty()) {
      return TableError("a naming says of extra numbers, which the table has, before its rules");
    }
    return OkStatus();
  }

  // ignore PATTERN "reason", bookkeeping PATTERN "reason"
  Status ParseIgnore(std::string_view text, bool is_bookkeeping) {
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
  Status ParseObject(std::string_view text) {
    const std::string_view name = TakeWord(text);
    if (!text.starts_with(':')) return TableError("expected NAME : AXES = LOGICAL", text);
    return ParseRule(name, Trim(text.substr(1)), /*is_object=*/true);
  }

  // NAME : axes {= LOGICAL} {derived {expected}} {when expr}
  Status ParseRule(std::string_view name, std::string_view text, bool is_object = false) {
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
  Result<TensorRule> ReadRule(std::string_view name, std::string_view text,
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
      CKPT_ASSIGN_OR_RETURN(rule.logical, NeedLogical(Trim(text.substr(equals + 1))));
      text = Trim(text.substr(0, equals));
    }
    tokens_ = ShapeTokens(text);
    at_ = 0;
    while (at_ < tokens_.size()) {
      CKPT_ASSIGN_OR_RETURN(DimRule dim, ParseDimRule());
      rule.dims.push_back(std::move(dim));
    }
    CKPT_RETURN_IF_ERROR(CheckRule(table_, rule));
    CKPT_RETURN_IF_ERROR(SayOnce(rule, name));
    return rule;
  }

  // Of whom a rule speaks, what it says of them, and when.
  Status SayOnce(const TensorRule& rule, std::string_view name) {
    std::vector<std::string> said = {rule.is_object ? "object" : "tensor", std::string(name)};
    said.insert(said.end(), tokens_.begin(), tokens_.end());
    if (rule.logical) said.push_back("= " + table_.logicals[*rule.logical].name);
    if (rule.derived) said.emplace_back(rule.expected ? "derived expected" : "derived");
    std::set<std::string> conditions;
    for (const Expr& when : rule.when) conditions.insert("when " + when.text());
    said.insert(said.end(), conditions.begin(), conditions.end());
    return SayOnce(std::move(said), name);
  }

  // A rule that a naming, or the part of the table before all of them, has already is a slip of
  // whoever wrote one of the two.
  Status SayOnce(std::vector<std::string> said, std::string_view name) {
    const auto [first, is_new] = said_.emplace(std::move(said), fmt::format("{}:{}", file_, line_));
    if (is_new) return OkStatus();
    return TableError(fmt::format("{} says the same", first->second), name);
  }

  // model.layers.<l+1>.weight
  Status ParseName(std::string_view text, TensorRule& rule) {
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
          const std::string_view number = axis.substr(plus + 1);
          const auto parsed =
              std::from_chars(number.data(), number.data() + number.size(), part.plus);
          if (parsed.ec != std::errc() || parsed.ptr != number.data() + number.size() ||
              part.plus > 1'000'000) {
            return TableError("not an offset", number);
          }
          axis = axis.substr(0, plus);
        }
        CKPT_RETURN_IF_ERROR(CheckAxis(axis));
        if (Contains(rule.name_axes, axis)) return TableError("axis is bound twice", axis);
        part.axis = axis;
        rule.name_axes.emplace_back(axis);
      }
      rule.name.push_back(std::move(part));
    }
    return OkStatus();
  }

  // factor | ( factor+ )
  Result<DimRule> ParseDimRule() {
    DimRule dim;
    if (tokens_[at_] != "(") {
      CKPT_ASSIGN_OR_RETURN(Factor factor, ParseFactor());
      dim.push_back(std::move(factor));
      return dim;
    }
    ++at_;
    while (at_ < tokens_.size() && tokens_[at_] != ")") {
      CKPT_ASSIGN_OR_RETURN(Factor factor, ParseFactor());
      dim.push_back(std::move(factor));
    }
    if (at_ == tokens_.size() || dim.empty()) return TableError("product has no factors or no ')'");
    ++at_;
    return dim;
  }

  // NAME | { slot | slot }
  Result<Factor> ParseFactor() {
    Factor factor;
    if (tokens_[at_] != "{") {
      factor.axis = tokens_[at_++];
      CKPT_RETURN_IF_ERROR(CheckAxis(factor.axis));
      return factor;
    }
    do {
      ++at_;  // "{" or "|"
      if (at_ == tokens_.size()) return TableError("direct sum has no '}'");
      Slot slot;
      const std::string& name = tokens_[at_++];
      slot.logical = kZeros;
      if (name != "zero") {
        CKPT_ASSIGN_OR_RETURN(slot.logical, NeedLogical(name));
      }
      if (at_ < tokens_.size() && tokens_[at_] == ":") ++at_;
      while (at_ < tokens_.size() && tokens_[at_] != "|" && tokens_[at_] != "}") {
        CKPT_RETURN_IF_ERROR(CheckAxis(tokens_[at_]));
        slot.axes.push_back(tokens_[at_++]);
      }
      factor.slots.push_back(std::move(slot));
    } while (at_ < tokens_.size() && tokens_[at_] == "|");
    if (at_ == tokens_.size()) return TableError("direct sum has no '}'");
    ++at_;  // "}"
    return factor;
  }

  // Cuts " when EXPR" off the end of `text`.
  static Status TakeCondition(std::string_view& text, std::optional<Expr>& when) {
    const std::size_t at = text.find(" when ");
    if (at == std::string_view::npos) return OkStatus();
    CKPT_ASSIGN_OR_RETURN(when, Expr::Parse(Trim(text.substr(at + 6))));
    text = Trim(text.substr(0, at));
    return OkStatus();
  }

  Result<Naming*> CurrentNaming() {
    if (table_.namings.empty()) return TableError("statement belongs to a naming");
    return &table_.namings.back();
  }
  Status CheckAxis(std::string_view axis) const {
    if (table_.axes.contains(axis)) return OkStatus();
    return TableError("axis has no dim", axis);
  }
  [[nodiscard]] std::optional<LogicalId> FindLogical(std::string_view name) const {
    for (LogicalId id = 0; id < table_.logicals.size(); ++id) {
      if (table_.logicals[id].name == name) return id;
    }
    return std::nullopt;
  }
  Result<LogicalId> NeedLogical(std::string_view name) const {
    if (const std::optional<LogicalId> id = FindLogical(name)) return *id;
    return TableError("no such logical tensor", name);
  }
  static bool Contains(const std::vector<std::string>& names, std::string_view name) {
    return std::find(names.begin(), names.end(), name) != names.end();
  }

  struct Stack {
    std::string axis;
    Expr when;
    Expr otherwise;
    std::vector<TensorRule> apart;  // rules for `otherwise`
  };

  const IncludeResolver& includes_;
  LayoutTable table_;
  std::vector<IgnoreRule> ignores_;                       // of every naming
  std::optional<Expr> enclosing_;                         // of the `if` that is open
  std::optional<Stack> stack_;                            // that is open
  std::map<std::vector<std::string>, std::string> said_;  // what rules say → file and line
  std::string_view file_;
  int line_ = 0;
  std::vector<std::string> tokens_;  // of the shape being parsed
  std::size_t at_ = 0;
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
