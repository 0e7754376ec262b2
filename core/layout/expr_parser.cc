#include <array>
#include <charconv>
#include <optional>
#include <utility>

#include <fmt/format.h>

#include "core/base/quote.h"
#include "core/base/text_number.h"
#include "core/layout/expr.h"
#include "core/layout/internal/expr_tree.h"

namespace ckpt::layout {
namespace {

constexpr std::size_t kMaxTextBytes = 4096;
constexpr int kMaxDepth = 64;

using Op = Expr::Tree::Op;
using Node = Expr::Tree::Node;
using NodeIndex = Expr::Tree::NodeIndex;

bool IsNameStart(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_'; }
bool IsNameByte(char c) { return IsNameStart(c) || IsDigit(c); }

enum class TokenKind : std::uint8_t { kEnd, kName, kNumber, kText, kSymbol };

struct Token {
  TokenKind kind = TokenKind::kEnd;
  std::string_view text;  // of kText: without the quotes
  std::size_t position = 0;
};

// Longest first, so that `??` is not read as two `?`.
constexpr std::array<std::string_view, 22> kSymbols = {"??", "==", "!=", "<=", ">=", "<", ">", "+",
                                                       "-",  "*",  "/",  "%",  "(",  ")", "[", "]",
                                                       ",",  "?",  ":",  "=",  "{",  "}"};

// Recursive descent, with one function per precedence level.
class ExprParser {
 public:
  ExprParser(std::string_view text, Expr::Tree& tree) : text_(text), tree_(tree) {}

  Status Parse() {
    CKPT_RETURN_IF_ERROR(Advance());
    CKPT_ASSIGN_OR_RETURN(tree_.root, Ternary());
    if (token_.kind != TokenKind::kEnd) return Unexpected("an operator or the end");
    return OkStatus();
  }

 private:
  struct Depth {
    explicit Depth(int& depth) : value(depth) { ++value; }
    ~Depth() { --value; }
    Depth(const Depth&) = delete;
    Depth& operator=(const Depth&) = delete;
    int& value;
  };

  Status SyntaxError(std::string_view message, std::size_t position) const {
    return Error(ErrorKind::kBadMetadata, message)
        .Actual(fmt::format("column {} of {}", position + 1, Quote(text_)));
  }
  Status Unexpected(std::string_view expected) const {
    return SyntaxError("expression has a syntax error", token_.position).Expected(expected);
  }

  Status Advance() {
    while (at_ < text_.size() && (text_[at_] == ' ' || text_[at_] == '\t')) ++at_;
    token_ = {TokenKind::kEnd, {}, at_};
    if (at_ == text_.size()) return OkStatus();
    const char c = text_[at_];
    if (IsNameStart(c)) return Take(TokenKind::kName, NameEnd());
    if (IsDigit(c)) return Take(TokenKind::kNumber, NumberEnd());
    if (c == '"') {
      const std::size_t close = text_.find('"', at_ + 1);
      if (close == std::string_view::npos) return SyntaxError("text has no closing quote", at_);
      token_ = {TokenKind::kText, text_.substr(at_ + 1, close - at_ - 1), at_};
      at_ = close + 1;
      return OkStatus();
    }
    for (const std::string_view symbol : kSymbols) {
      if (text_.substr(at_).starts_with(symbol)) {
        return Take(TokenKind::kSymbol, at_ + symbol.size());
      }
    }
    return SyntaxError("expression has an unknown character", at_);
  }
  Status Take(TokenKind kind, std::size_t end) {
    token_ = {kind, text_.substr(at_, end - at_), at_};
    at_ = end;
    return OkStatus();
  }
  // Names are dotted: "rope_parameters.rope_theta".
  [[nodiscard]] std::size_t NameEnd() const {
    std::size_t end = at_;
    while (end < text_.size() &&
           (IsNameByte(text_[end]) ||
            (text_[end] == '.' && end + 1 < text_.size() && IsNameByte(text_[end + 1])))) {
      ++end;
    }
    return end;
  }
  [[nodiscard]] std::size_t NumberEnd() const {
    std::size_t end = at_;
    while (end < text_.size()) {
      const bool exponent_sign = (text_[end] == '-' || text_[end] == '+') &&
                                 (text_[end - 1] == 'e' || text_[end - 1] == 'E');
      if (!IsNameByte(text_[end]) && text_[end] != '.' && !exponent_sign) break;
      ++end;
    }
    return end;
  }

  [[nodiscard]] bool Is(std::string_view text) const {
    return (token_.kind == TokenKind::kSymbol || token_.kind == TokenKind::kName) &&
           token_.text == text;
  }
  Status Expect(std::string_view symbol) {
    if (!Is(symbol)) return Unexpected(Quote(symbol));
    return Advance();
  }

  NodeIndex Add(Op op, std::size_t position, std::vector<NodeIndex> args) {
    Node node;
    node.op = op;
    node.position = position;
    node.args = std::move(args);
    tree_.nodes.push_back(std::move(node));
    return static_cast<NodeIndex>(tree_.nodes.size() - 1);
  }

  Result<NodeIndex> Ternary() {
    const Depth depth(depth_);
    if (depth_ > kMaxDepth) {
      return Error(ErrorKind::kResource, "expression is nested too deeply").Actual(Quote(text_));
    }
    CKPT_ASSIGN_OR_RETURN(const NodeIndex condition, Or());
    if (!Is("?")) return condition;
    const std::size_t position = token_.position;
    CKPT_RETURN_IF_ERROR(Advance());
    CKPT_ASSIGN_OR_RETURN(const NodeIndex then, Ternary());
    CKPT_RETURN_IF_ERROR(Expect(":"));
    CKPT_ASSIGN_OR_RETURN(const NodeIndex otherwise, Ternary());
    return Add(Op::kTernary, position, {condition, then, otherwise});
  }

  struct Operator {
    std::string_view spelling;
    Op op;
  };
  // `next (op next)*`, grouped to the left.
  template <typename Next>
  Result<NodeIndex> LeftToRight(std::initializer_list<Operator> operators, Next next) {
    CKPT_ASSIGN_OR_RETURN(NodeIndex left, (this->*next)());
    while (true) {
      std::optional<Op> op;
      for (const Operator& candidate : operators) {
        if (Is(candidate.spelling)) op = candidate.op;
      }
      if (!op) return left;
      const std::size_t position = token_.position;
      CKPT_RETURN_IF_ERROR(Advance());
      CKPT_ASSIGN_OR_RETURN(const NodeIndex right, (this->*next)());
      left = Add(*op, position, {left, right});
    }
  }
  Result<NodeIndex> Or() { return LeftToRight({{"or", Op::kOr}}, &ExprParser::And); }
  Result<NodeIndex> And() { return LeftToRight({{"and", Op::kAnd}}, &ExprParser::Not); }
  Result<NodeIndex> Not() {
    if (!Is("not")) return Comparison();
    const Depth depth(depth_);
    if (depth_ > kMaxDepth) return Unexpected("fewer nested operators");
    const std::size_t position = token_.position;
    CKPT_RETURN_IF_ERROR(Advance());
    CKPT_ASSIGN_OR_RETURN(const NodeIndex operand, Not());
    return Add(Op::kNot, position, {operand});
  }
  // One comparison: `a < b < c` is refused, because it would not mean what it says.
  Result<NodeIndex> Comparison() {
    CKPT_ASSIGN_OR_RETURN(const NodeIndex left, Coalesce());
    static constexpr std::array<Operator, 7> kComparisons = {{{"==", Op::kEqual},
                                                              {"!=", Op::kNotEqual},
                                                              {"<", Op::kLess},
                                                              {"<=", Op::kLessEqual},
                                                              {">", Op::kGreater},
                                                              {">=", Op::kGreaterEqual},
                                                              {"in", Op::kIn}}};
    std::optional<Op> op;
    for (const Operator& candidate : kComparisons) {
      if (Is(candidate.spelling)) op = candidate.op;
    }
    const std::size_t position = token_.position;
    if (Is("not")) {
      CKPT_RETURN_IF_ERROR(Advance());
      if (!Is("in")) return Unexpected("\"in\"");
      op = Op::kNotIn;
    }
    if (!op) return left;
    CKPT_RETURN_IF_ERROR(Advance());
    CKPT_ASSIGN_OR_RETURN(const NodeIndex right, Coalesce());
    return Add(*op, position, {left, right});
  }
  Result<NodeIndex> Coalesce() {
    return LeftToRight({{"??", Op::kCoalesce}}, &ExprParser::Additive);
  }
  Result<NodeIndex> Additive() {
    return LeftToRight({{"+", Op::kAdd}, {"-", Op::kSubtract}}, &ExprParser::Multiplicative);
  }
  Result<NodeIndex> Multiplicative() {
    return LeftToRight({{"*", Op::kMultiply}, {"/", Op::kDivide}, {"%", Op::kRemainder}},
                       &ExprParser::Unary);
  }
  Result<NodeIndex> Unary() {
    if (!Is("-")) return Postfix();
    const Depth depth(depth_);
    if (depth_ > kMaxDepth) return Unexpected("fewer nested operators");
    const std::size_t position = token_.position;
    CKPT_RETURN_IF_ERROR(Advance());
    CKPT_ASSIGN_OR_RETURN(const NodeIndex operand, Unary());
    return Add(Op::kNegate, position, {operand});
  }
  Result<NodeIndex> Postfix() {
    CKPT_ASSIGN_OR_RETURN(NodeIndex value, Primary());
    while (Is("[")) {
      const std::size_t position = token_.position;
      CKPT_RETURN_IF_ERROR(Advance());
      CKPT_ASSIGN_OR_RETURN(const NodeIndex index, Ternary());
      CKPT_RETURN_IF_ERROR(Expect("]"));
      value = Add(Op::kIndex, position, {value, index});
    }
    return value;
  }

  Result<NodeIndex> Primary() {
    const Token token = token_;
    switch (token.kind) {
      case TokenKind::kEnd:
        return Unexpected("a value");
      case TokenKind::kNumber:
        return Number();
      case TokenKind::kText:
        CKPT_RETURN_IF_ERROR(Advance());
        return Literal(Value(std::string(token.text)), token.position);
      case TokenKind::kSymbol:
        if (Is("(")) {
          CKPT_RETURN_IF_ERROR(Advance());
          CKPT_ASSIGN_OR_RETURN(const NodeIndex inner, Ternary());
          CKPT_RETURN_IF_ERROR(Expect(")"));
          return inner;
        }
        if (Is("[")) return List();
        return Unexpected("a value");
      case TokenKind::kName:
        return Name();
    }
    return Unexpected("a value");
  }
  NodeIndex Literal(Value value, std::size_t position) {
    const NodeIndex index = Add(Op::kLiteral, position, {});
    tree_.nodes[index].literal = std::move(value);
    return index;
  }
  Result<NodeIndex> Number() {
    const Token token = token_;
    CKPT_RETURN_IF_ERROR(Advance());
    const char* const end = token.text.data() + token.text.size();
    std::int64_t integer = 0;
    if (const auto parsed = std::from_chars(token.text.data(), end, integer);
        parsed.ec == std::errc() && parsed.ptr == end) {
      return Literal(integer, token.position);
    }
    double number = 0;
    if (const auto parsed = std::from_chars(token.text.data(), end, number);
        parsed.ec == std::errc() && parsed.ptr == end) {
      return Literal(number, token.position);
    }
    return SyntaxError("not a number", token.position);
  }
  Result<NodeIndex> Name() {
    const Token token = token_;
    CKPT_RETURN_IF_ERROR(Advance());
    if (token.text == "true") return Literal(true, token.position);
    if (token.text == "false") return Literal(false, token.position);
    if (token.text == "null") return Literal({}, token.position);
    for (const std::string_view word : {"and", "or", "not", "in", "for", "if"}) {
      if (token.text == word) {
        return SyntaxError("expression has a syntax error", token.position).Expected("a value");
      }
    }
    std::vector<NodeIndex> args;
    const bool is_call = Is("(");
    if (is_call) {
      CKPT_RETURN_IF_ERROR(Advance());
      CKPT_ASSIGN_OR_RETURN(args, Items(")"));
    }
    const NodeIndex index = Add(is_call ? Op::kCall : Op::kName, token.position, std::move(args));
    tree_.nodes[index].name = token.text;
    return index;
  }
  // Reads items separated by commas up to `close`, and consumes `close`.
  Result<std::vector<NodeIndex>> Items(std::string_view close) {
    std::vector<NodeIndex> items;
    while (!Is(close)) {
      if (!items.empty()) CKPT_RETURN_IF_ERROR(Expect(","));
      CKPT_ASSIGN_OR_RETURN(const NodeIndex item, Ternary());
      items.push_back(item);
    }
    CKPT_RETURN_IF_ERROR(Advance());
    return items;
  }
  Result<NodeIndex> List() {
    const std::size_t position = token_.position;
    CKPT_RETURN_IF_ERROR(Advance());
    if (Is("]")) {
      CKPT_RETURN_IF_ERROR(Advance());
      return Add(Op::kList, position, {});
    }
    CKPT_ASSIGN_OR_RETURN(const NodeIndex first, Ternary());
    if (Is("for")) return Comprehension(position, first);
    std::vector<NodeIndex> items = {first};
    if (!Is("]")) {
      CKPT_RETURN_IF_ERROR(Expect(","));
      CKPT_ASSIGN_OR_RETURN(const std::vector<NodeIndex> rest, Items("]"));
      items.insert(items.end(), rest.begin(), rest.end());
    } else {
      CKPT_RETURN_IF_ERROR(Advance());
    }
    return Add(Op::kList, position, std::move(items));
  }
  Result<NodeIndex> Comprehension(std::size_t position, NodeIndex body) {
    CKPT_RETURN_IF_ERROR(Advance());
    if (token_.kind != TokenKind::kName) return Unexpected("a name");
    const std::string variable(token_.text);
    CKPT_RETURN_IF_ERROR(Advance());
    CKPT_RETURN_IF_ERROR(Expect("in"));
    CKPT_ASSIGN_OR_RETURN(const NodeIndex source, Ternary());
    std::vector<NodeIndex> args = {body, source};
    if (Is("if")) {
      CKPT_RETURN_IF_ERROR(Advance());
      CKPT_ASSIGN_OR_RETURN(const NodeIndex condition, Ternary());
      args.push_back(condition);
    }
    CKPT_RETURN_IF_ERROR(Expect("]"));
    const NodeIndex index = Add(Op::kComprehension, position, std::move(args));
    tree_.nodes[index].name = variable;
    return index;
  }

  std::string_view text_;
  Expr::Tree& tree_;
  std::size_t at_ = 0;
  Token token_;
  int depth_ = 0;
};

}  // namespace

Result<Expr> Expr::Parse(std::string_view text) {
  if (text.size() > kMaxTextBytes) {
    return Error(ErrorKind::kResource, "expression is too long")
        .Expected(fmt::format("at most {} bytes", kMaxTextBytes))
        .Actual(fmt::format("{} bytes", text.size()));
  }
  auto tree = std::make_shared<Tree>();
  tree->text = text;
  CKPT_RETURN_IF_ERROR(ExprParser(tree->text, *tree).Parse());
  return Expr(std::move(tree));
}

const std::string& Expr::text() const { return tree_->text; }

std::vector<std::string> Expr::names() const {
  std::vector<std::string> names;
  for (const Tree::Node& node : tree_->nodes) {
    if (node.op == Tree::Op::kName) names.push_back(node.name);
  }
  return names;
}

std::vector<std::string> Expr::texts() const {
  std::vector<std::string> texts;
  for (const Tree::Node& node : tree_->nodes) {
    const std::string* const text = node.op == Tree::Op::kLiteral ? node.literal.AsText() : nullptr;
    if (text != nullptr) texts.push_back(*text);
  }
  return texts;
}

std::vector<std::string> Expr::calls() const {
  std::vector<std::string> calls;
  for (const Tree::Node& node : tree_->nodes) {
    if (node.op == Tree::Op::kCall && !IsBuiltinFunction(node.name)) calls.push_back(node.name);
  }
  return calls;
}

}  // namespace ckpt::layout
