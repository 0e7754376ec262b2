// The syntax tree behind Expr, shared by its parser and its evaluator.
#ifndef CKPT_CORE_LAYOUT_INTERNAL_EXPR_TREE_H_
#define CKPT_CORE_LAYOUT_INTERNAL_EXPR_TREE_H_

#include <cstdint>
#include <string>
#include <vector>

#include "core/layout/expr.h"

namespace ckpt::layout {

struct Expr::Tree {
  enum class Op : std::uint8_t {
    kLiteral,
    kName,
    kCall,
    kList,
    kComprehension,
    kIndex,
    kNegate,
    kNot,
    kTernary,
    kOr,
    kAnd,
    kEqual,
    kNotEqual,
    kLess,
    kLessEqual,
    kGreater,
    kGreaterEqual,
    kIn,
    kNotIn,
    kCoalesce,
    kAdd,
    kSubtract,
    kMultiply,
    kDivide,
    kRemainder,
  };
  using NodeIndex = std::uint32_t;
  struct Node {
    Op op = Op::kLiteral;
    std::size_t position = 0;     // byte in `text`
    Value literal;                // kLiteral
    std::string name;             // kName; the function of kCall; the variable of kComprehension
    std::vector<NodeIndex> args;  // kComprehension: body, source, and the condition if there is one
  };

  std::string text;
  std::vector<Node> nodes;
  NodeIndex root = 0;
};

}  // namespace ckpt::layout

#endif  // CKPT_CORE_LAYOUT_INTERNAL_EXPR_TREE_H_
