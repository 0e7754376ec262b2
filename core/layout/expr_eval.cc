#include <algorithm>
#include <array>
#include <cmath>
#include <optional>
#include <utility>

#include <fmt/format.h>

#include "core/base/checked_math.h"
#include "core/base/quote.h"
#include "core/layout/expr.h"
#include "core/layout/internal/expr_tree.h"

namespace ckpt::layout {
namespace {

constexpr std::int64_t kMaxListLength = 65536;

using Op = Expr::Tree::Op;
using Node = Expr::Tree::Node;
using NodeIndex = Expr::Tree::NodeIndex;

std::optional<double> ToDouble(const Value& value) {
  if (const std::int64_t* integer = value.AsInt()) return static_cast<double>(*integer);
  if (const double* number = value.AsFloat()) return *number;
  return std::nullopt;
}

bool AreEqual(const Value& a, const Value& b) {
  if (a.AsInt() != nullptr && b.AsInt() != nullptr) return *a.AsInt() == *b.AsInt();
  const std::optional<double> x = ToDouble(a);
  const std::optional<double> y = ToDouble(b);
  return x && y ? *x == *y : a == b;
}

class Evaluator {
 public:
  explicit Evaluator(const Expr::Tree& tree) : tree_(tree) {}

  Result<Value> Evaluate(NodeIndex index, const Names& names) const {
    const Node& node = tree_.nodes[index];
    switch (node.op) {
      case Op::kLiteral:
        return node.literal;
      case Op::kName:
        return names.Get(node.name);
      case Op::kCall:
        return Call(node, names);
      case Op::kList: {
        CKPT_ASSIGN_OR_RETURN(Value::List items, EvaluateAll(node.args, names));
        return Value(std::move(items));
      }
      case Op::kComprehension:
        return Comprehension(node, names);
      case Op::kIndex:
        return Index(node, names);
      case Op::kNegate:
        return Negate(node, names);
      case Op::kNot: {
        CKPT_ASSIGN_OR_RETURN(const bool operand, Bool(node.args[0], names));
        return Value(!operand);
      }
      case Op::kTernary: {
        CKPT_ASSIGN_OR_RETURN(const bool condition, Bool(node.args[0], names));
        return Evaluate(node.args[condition ? 1 : 2], names);
      }
      case Op::kOr:
      case Op::kAnd: {
        CKPT_ASSIGN_OR_RETURN(const bool left, Bool(node.args[0], names));
        if (left == (node.op == Op::kOr)) return Value(left);
        CKPT_ASSIGN_OR_RETURN(const bool right, Bool(node.args[1], names));
        return Value(right);
      }
      case Op::kCoalesce: {
        CKPT_ASSIGN_OR_RETURN(Value left, Evaluate(node.args[0], names));
        if (!left.is_null()) return left;
        return Evaluate(node.args[1], names);
      }
      case Op::kEqual:
      case Op::kNotEqual: {
        CKPT_ASSIGN_OR_RETURN(const Value left, Evaluate(node.args[0], names));
        CKPT_ASSIGN_OR_RETURN(const Value right, Evaluate(node.args[1], names));
        return Value(AreEqual(left, right) == (node.op == Op::kEqual));
      }
      case Op::kIn:
      case Op::kNotIn: {
        CKPT_ASSIGN_OR_RETURN(const Value item, Evaluate(node.args[0], names));
        CKPT_ASSIGN_OR_RETURN(const Value list, Evaluate(node.args[1], names));
        if (list.AsList() == nullptr) return WrongKind(node.args[1], "a list", list);
        const bool found = std::any_of(list.AsList()->begin(), list.AsList()->end(),
                                       [&](const Value& v) { return AreEqual(v, item); });
        return Value(found == (node.op == Op::kIn));
      }
      case Op::kLess:
      case Op::kLessEqual:
      case Op::kGreater:
      case Op::kGreaterEqual:
        return Compare(node, names);
      case Op::kAdd:
      case Op::kSubtract:
      case Op::kMultiply:
      case Op::kDivide:
      case Op::kRemainder:
        return Arithmetic(node, names);
    }
    return Fail(node, ErrorKind::kInternal, "unknown operator");
  }

  Result<bool> Bool(NodeIndex index, const Names& names) const {
    CKPT_ASSIGN_OR_RETURN(const Value value, Evaluate(index, names));
    if (value.AsBool() == nullptr) return WrongKind(index, "true or false", value);
    return *value.AsBool();
  }

 private:
  [[nodiscard]] std::string Where(const Node& node) const {
    return fmt::format("evaluating {}, column {}", Quote(tree_.text), node.position + 1);
  }
  Status Fail(const Node& node, ErrorKind kind, std::string_view message) const {
    return Error(kind, message).While(Where(node));
  }
  Status WrongKind(NodeIndex index, std::string_view expected, const Value& actual) const {
    const Node& node = tree_.nodes[index];
    const std::string what = node.op == Op::kName ? Quote(node.name) : "a value";
    if (actual.is_null()) {
      return Error(ErrorKind::kBadMetadata, "the configuration lacks " + what)
          .Expected(expected)
          .While(Where(node));
    }
    return Error(ErrorKind::kBadMetadata, what + " is of the wrong kind")
        .Expected(expected)
        .Actual(FormatValue(actual))
        .While(Where(node));
  }

  Result<Value::List> EvaluateAll(std::span<const NodeIndex> args, const Names& names) const {
    Value::List values;
    values.reserve(args.size());
    for (const NodeIndex arg : args) {
      CKPT_ASSIGN_OR_RETURN(Value value, Evaluate(arg, names));
      values.push_back(std::move(value));
    }
    return values;
  }

  Result<Value> Negate(const Node& node, const Names& names) const {
    CKPT_ASSIGN_OR_RETURN(const Value value, Evaluate(node.args[0], names));
    if (const double* number = value.AsFloat()) return Value(-*number);
    if (value.AsInt() == nullptr) return WrongKind(node.args[0], "a number", value);
    std::int64_t negated = 0;
    if (__builtin_sub_overflow(std::int64_t{0}, *value.AsInt(), &negated)) {
      return Fail(node, ErrorKind::kResource, "integer result does not fit 63 bits");
    }
    return Value(negated);
  }

  Result<Value> Index(const Node& node, const Names& names) const {
    CKPT_ASSIGN_OR_RETURN(const Value list, Evaluate(node.args[0], names));
    CKPT_ASSIGN_OR_RETURN(const Value index, Evaluate(node.args[1], names));
    if (list.AsList() == nullptr) return WrongKind(node.args[0], "a list", list);
    if (index.AsInt() == nullptr) return WrongKind(node.args[1], "an integer", index);
    const auto length = static_cast<std::int64_t>(list.AsList()->size());
    if (*index.AsInt() < 0 || *index.AsInt() >= length) {
      return Fail(node, ErrorKind::kBadMetadata, "list index is out of range")
          .Expected(fmt::format("0 … {}", length - 1))
          .Actual(FormatValue(index));
    }
    return (*list.AsList())[static_cast<std::size_t>(*index.AsInt())];
  }

  Result<Value> Compare(const Node& node, const Names& names) const {
    CKPT_ASSIGN_OR_RETURN(const Value left, Evaluate(node.args[0], names));
    CKPT_ASSIGN_OR_RETURN(const Value right, Evaluate(node.args[1], names));
    if (left.AsInt() != nullptr && right.AsInt() != nullptr) {
      return Value(Ordered(node.op, *left.AsInt(), *right.AsInt()));
    }
    const std::optional<double> x = ToDouble(left);
    const std::optional<double> y = ToDouble(right);
    if (!x) return WrongKind(node.args[0], "a number", left);
    if (!y) return WrongKind(node.args[1], "a number", right);
    return Value(Ordered(node.op, *x, *y));
  }
  template <typename T>
  static bool Ordered(Op op, T a, T b) {
    if (op == Op::kLess) return a < b;
    if (op == Op::kLessEqual) return a <= b;
    return op == Op::kGreater ? a > b : a >= b;
  }

  Result<Value> Arithmetic(const Node& node, const Names& names) const {
    CKPT_ASSIGN_OR_RETURN(const Value left, Evaluate(node.args[0], names));
    CKPT_ASSIGN_OR_RETURN(const Value right, Evaluate(node.args[1], names));
    if (left.AsInt() != nullptr && right.AsInt() != nullptr) {
      return IntegerArithmetic(node, *left.AsInt(), *right.AsInt());
    }
    const std::optional<double> x = ToDouble(left);
    const std::optional<double> y = ToDouble(right);
    if (!x) return WrongKind(node.args[0], "a number", left);
    if (!y) return WrongKind(node.args[1], "a number", right);
    switch (node.op) {
      case Op::kAdd:
        return Value(*x + *y);
      case Op::kSubtract:
        return Value(*x - *y);
      case Op::kMultiply:
        return Value(*x * *y);
      case Op::kDivide:
        if (*y == 0) return Fail(node, ErrorKind::kBadMetadata, "division by zero");
        return Value(*x / *y);
      default:
        return Fail(node, ErrorKind::kBadMetadata, "% needs integers");
    }
  }

  Result<Value> IntegerArithmetic(const Node& node, std::int64_t a, std::int64_t b) const {
    std::int64_t result = 0;
    bool fits = true;
    if (node.op == Op::kAdd) fits = CheckedAdd(a, b, &result);
    if (node.op == Op::kSubtract) fits = !__builtin_sub_overflow(a, b, &result);
    if (node.op == Op::kMultiply) fits = CheckedMul(a, b, &result);
    if (node.op == Op::kDivide || node.op == Op::kRemainder) {
      if (b == 0) return Fail(node, ErrorKind::kBadMetadata, "division by zero");
      fits = !(b == -1 && a == INT64_MIN);
      if (fits && node.op == Op::kDivide && a % b != 0) {
        return Fail(node, ErrorKind::kBadMetadata, "integer division has a remainder")
            .Actual(fmt::format("{} / {}", a, b));
      }
      if (fits) result = node.op == Op::kDivide ? a / b : a % b;
    }
    if (!fits) {
      return Fail(node, ErrorKind::kResource, "integer result does not fit 63 bits")
          .Actual(fmt::format("{} and {}", a, b));
    }
    return Value(result);
  }

  Result<Value> Comprehension(const Node& node, const Names& names) const {
    CKPT_ASSIGN_OR_RETURN(const Value source, Evaluate(node.args[1], names));
    const Value::List* const list = source.AsList();
    if (list == nullptr && source.AsInt() == nullptr) {
      return WrongKind(node.args[1], "a count or a list", source);
    }
    const std::int64_t count =
        list != nullptr ? static_cast<std::int64_t>(list->size()) : *source.AsInt();
    if (count > kMaxListLength) {
      return Fail(node, ErrorKind::kResource, "list is too long")
          .Expected(fmt::format("at most {} elements", kMaxListLength))
          .Actual(fmt::format("{}", count));
    }
    Value::List result;
    for (std::int64_t i = 0; i < count; ++i) {
      const LocalName scope(names, node.name,
                            list != nullptr ? (*list)[static_cast<std::size_t>(i)] : Value(i));
      if (node.args.size() == 3) {
        CKPT_ASSIGN_OR_RETURN(const bool keep, Bool(node.args[2], scope));
        if (!keep) continue;
      }
      CKPT_ASSIGN_OR_RETURN(Value item, Evaluate(node.args[0], scope));
      result.push_back(std::move(item));
    }
    return Value(std::move(result));
  }

  Result<Value> Call(const Node& node, const Names& names) const {
    CKPT_ASSIGN_OR_RETURN(const Value::List args, EvaluateAll(node.args, names));
    if (!IsBuiltinFunction(node.name)) return names.Call(node.name, args);
    const std::size_t arity =
        node.name == "ceildiv" || node.name == "min" || node.name == "max" ? 2 : 1;
    if (args.size() != arity) {
      return Fail(node, ErrorKind::kBadMetadata, "wrong number of arguments")
          .Expected(fmt::format("{}", arity))
          .Actual(fmt::format("{}", args.size()));
    }
    if (node.name == "is_int") return Value(args[0].AsInt() != nullptr);
    if (node.name == "is_list") return Value(args[0].AsList() != nullptr);
    if (node.name == "int") return Integral(node, args[0]);
    if (arity == 1) return ListFunction(node, args[0]);
    for (std::size_t i = 0; i < 2; ++i) {
      if (args[i].AsInt() == nullptr) return WrongKind(node.args[i], "an integer", args[i]);
    }
    const std::int64_t a = *args[0].AsInt();
    const std::int64_t b = *args[1].AsInt();
    if (node.name == "min") return Value(std::min(a, b));
    if (node.name == "max") return Value(std::max(a, b));
    if (a < 0 || b <= 0) {
      return Fail(node, ErrorKind::kBadMetadata, "ceildiv needs a >= 0 and b > 0")
          .Actual(fmt::format("{} and {}", a, b));
    }
    return Value(a / b + (a % b != 0 ? 1 : 0));
  }

  // 10000.0 → 10000; other numbers stay as they are.
  Result<Value> Integral(const Node& node, const Value& arg) const {
    if (!ToDouble(arg)) return WrongKind(node.args[0], "a number", arg);
    const double* const number = arg.AsFloat();
    constexpr double kExactLimit = 9007199254740992.0;  // 2^53
    if (number == nullptr || std::abs(*number) > kExactLimit || std::trunc(*number) != *number) {
      return arg;
    }
    return Value(static_cast<std::int64_t>(*number));
  }

  Result<Value> ListFunction(const Node& node, const Value& arg) const {
    if (arg.AsList() == nullptr) return WrongKind(node.args[0], "a list", arg);
    const Value::List& list = *arg.AsList();
    if (node.name == "len") return Value(static_cast<std::int64_t>(list.size()));
    const bool wants = node.name == "any";  // the value that decides
    bool decided = false;
    for (const Value& item : list) {
      if (item.AsBool() == nullptr) return WrongKind(node.args[0], "a list of booleans", arg);
      decided = decided || *item.AsBool() == wants;
    }
    return Value(decided == wants);
  }

  const Expr::Tree& tree_;
};

}  // namespace

bool IsBuiltinFunction(std::string_view name) {
  static constexpr std::array<std::string_view, 9> kNames = {
      "ceildiv", "min", "max", "len", "all", "any", "int", "is_int", "is_list"};
  return std::find(kNames.begin(), kNames.end(), name) != kNames.end();
}

Result<Value> ConfigurationNames::Get(std::string_view name) const {
  const auto found = config_.find(name);
  return found == config_.end() ? Value() : found->second;
}

Result<Value> ConfigurationNames::Call(std::string_view function,
                                       std::span<const Value> /*args*/) const {
  return Error(ErrorKind::kBadMetadata, "no such function").Actual(Quote(function));
}

Result<Value> LocalName::Get(std::string_view name) const {
  if (name == name_) return value_;
  return outer_.Get(name);
}

Result<Value> LocalName::Call(std::string_view function, std::span<const Value> args) const {
  return outer_.Call(function, args);
}

Result<Value> Expr::Evaluate(const Names& names) const {
  return Evaluator(*tree_).Evaluate(tree_->root, names);
}

Result<bool> Expr::EvaluateBool(const Names& names) const {
  return Evaluator(*tree_).Bool(tree_->root, names);
}

}  // namespace ckpt::layout
