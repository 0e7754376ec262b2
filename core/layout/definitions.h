// The `let` lines of a table, evaluated with a configuration.
#ifndef CKPT_CORE_LAYOUT_DEFINITIONS_H_
#define CKPT_CORE_LAYOUT_DEFINITIONS_H_

#include <map>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/base/result.h"
#include "core/layout/expr.h"
#include "core/layout/value.h"

namespace ckpt::layout {

// `let NAME = expr`, or a function `let NAME(a, b) = expr`. A body sees its parameters, the
// definitions before it and the configuration, in that order. So nothing is recursive, and in `let
// rope_theta = rope_theta ?? 10000` the second name is the configuration's key.
struct Definition {
  std::string name;
  std::vector<std::string> params;
  Expr body;
};

// Definitions of one table, in order. Names are unique.
class Definitions {
 public:
  // `text` is what follows the keyword: "NAME = expr". Errors: kBadMetadata (syntax, a name that is
  // defined twice or is a built-in function).
  Status Add(std::string_view text);

  [[nodiscard]] std::span<const Definition> all() const { return all_; }
  // Position in all(), or -1.
  [[nodiscard]] int Find(std::string_view name) const;

 private:
  std::vector<Definition> all_;
  std::map<std::string, int, std::less<>> positions_;
};

// A configuration together with the definitions of a table. Values without parameters are computed
// at first use and kept. For one thread. Both arguments must outlive it.
class DefinedNames final : public Names {
 public:
  DefinedNames(const Definitions& definitions, const Configuration& config)
      : definitions_(definitions), config_(config) {}

  [[nodiscard]] Result<Value> Get(std::string_view name) const override;
  [[nodiscard]] Result<Value> Call(std::string_view function,
                                   std::span<const Value> args) const override;

  // The keys of the configuration on which `expr` depends, also through definitions.
  [[nodiscard]] std::set<std::string> KeysOf(const Expr& expr) const;
  // For messages: "hidden_size = 4096, num_attention_heads = 3", those keys and their values.
  [[nodiscard]] std::string Explain(const Expr& expr) const;

 private:
  class Frame;
  // Looks the name up among the definitions before position `visible`.
  [[nodiscard]] Result<Value> GetBefore(int visible, std::string_view name) const;
  [[nodiscard]] Result<Value> CallBefore(int visible, std::string_view function,
                                         std::span<const Value> args) const;

  void CollectKeys(const Expr& expr, int visible, std::set<int>& seen,
                   std::set<std::string>& keys) const;

  const Definitions& definitions_;
  const Configuration& config_;
  mutable std::map<int, Value> computed_;
};

}  // namespace ckpt::layout

#endif  // CKPT_CORE_LAYOUT_DEFINITIONS_H_
