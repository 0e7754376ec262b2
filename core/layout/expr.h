// Expressions over a model's configuration. Layout and translation tables use them.
#ifndef CKPT_CORE_LAYOUT_EXPR_H_
#define CKPT_CORE_LAYOUT_EXPR_H_

#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/base/result.h"
#include "core/layout/value.h"

namespace ckpt::layout {

// Gives the names in an expression their meaning.
class Names {
 public:
  virtual ~Names() = default;
  // The value of a name; null if nothing has that name.
  [[nodiscard]] virtual Result<Value> Get(std::string_view name) const = 0;
  // Calls a function that the table defines. Errors: kBadMetadata (no such function, wrong number
  // of arguments).
  [[nodiscard]] virtual Result<Value> Call(std::string_view function,
                                           std::span<const Value> args) const = 0;
};

// The names of a configuration, without functions. The configuration must outlive it.
class ConfigurationNames final : public Names {
 public:
  explicit ConfigurationNames(const Configuration& config) : config_(config) {}
  [[nodiscard]] Result<Value> Get(std::string_view name) const override;
  [[nodiscard]] Result<Value> Call(std::string_view function,
                                   std::span<const Value> args) const override;

 private:
  const Configuration& config_;
};

// Adds one name to those of `outer`, which must outlive it.
class LocalName final : public Names {
 public:
  LocalName(const Names& outer, std::string_view name, Value value)
      : outer_(outer), name_(name), value_(std::move(value)) {}
  [[nodiscard]] Result<Value> Get(std::string_view name) const override;
  [[nodiscard]] Result<Value> Call(std::string_view function,
                                   std::span<const Value> args) const override;

 private:
  const Names& outer_;
  std::string name_;
  Value value_;
};

// A parsed expression. Immutable, cheap to copy.
//
//   literals   12  1e-6  "text"  true  false  null  [1, 2]
//   names      hidden_size  rope_parameters.rope_theta      an unknown name is null
//   operators  c ? a : b | or | and | not | == != < <= > >= in, not in | ?? | + - | * / % | -x
//              | list[i]
//   lists      [body for x in n if condition]               n: a count, or a list
//   functions  ceildiv min max len all any int is_int is_list, and those of the table; int(x) turns
//              an integral float into an integer and leaves other numbers unchanged
//
// Operators are listed from loosest to tightest. `a ?? b` is b if a is null; it binds tighter than
// comparisons and looser than arithmetic. Integer division must be exact, integer results must fit
// 63 bits, and null is allowed only in `??`, `==` and `!=`.
class Expr {
 public:
  // Errors: kBadMetadata (syntax, with its column), kResource (longer than 4096 bytes, nested too
  // deeply).
  static Result<Expr> Parse(std::string_view text);

  // Errors: kBadMetadata (an operand of the wrong kind, a name that is null, inexact division,
  // division by zero), kResource (overflow, a list longer than 65,536 elements).
  [[nodiscard]] Result<Value> Evaluate(const Names& names) const;
  // Errors: those of Evaluate; kBadMetadata also if the value is not a boolean.
  [[nodiscard]] Result<bool> EvaluateBool(const Names& names) const;

  [[nodiscard]] const std::string& text() const;
  // Every name that the expression reads, and every function of the table that it calls.
  [[nodiscard]] std::vector<std::string> names() const;
  [[nodiscard]] std::vector<std::string> calls() const;
  // Every text literal in the expression.
  [[nodiscard]] std::vector<std::string> texts() const;

  struct Tree;  // private to the implementation

 private:
  explicit Expr(std::shared_ptr<const Tree> tree) : tree_(std::move(tree)) {}
  std::shared_ptr<const Tree> tree_;
};

// Whether `name` is a built-in function.
[[nodiscard]] bool IsBuiltinFunction(std::string_view name);

}  // namespace ckpt::layout

#endif  // CKPT_CORE_LAYOUT_EXPR_H_
