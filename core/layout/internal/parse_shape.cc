#include "core/layout/internal/parse_shape.h"

#include <cstddef>
#include <utility>

#include "core/layout/internal/table_error.h"
#include "core/layout/internal/table_terms.h"

namespace ckpt::layout {
namespace {

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

class ShapeParser {
 public:
  ShapeParser(const LayoutTable& table, const std::vector<std::string>& tokens)
      : table_(table), tokens_(tokens) {}

  Result<std::vector<DimRule>> Parse() {
    std::vector<DimRule> dims;
    while (at_ < tokens_.size()) {
      CKPT_ASSIGN_OR_RETURN(DimRule dim, ParseDimRule());
      dims.push_back(std::move(dim));
    }
    return dims;
  }

 private:
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
      CKPT_RETURN_IF_ERROR(CheckAxis(table_, factor.axis));
      return factor;
    }
    do {
      ++at_;  // "{" or "|"
      if (at_ == tokens_.size()) return TableError("direct sum has no '}'");
      Slot slot;
      const std::string& name = tokens_[at_++];
      slot.logical = kZeros;
      if (name != "zero") {
        CKPT_ASSIGN_OR_RETURN(slot.logical, NeedLogical(table_, name));
      }
      if (at_ < tokens_.size() && tokens_[at_] == ":") ++at_;
      while (at_ < tokens_.size() && tokens_[at_] != "|" && tokens_[at_] != "}") {
        CKPT_RETURN_IF_ERROR(CheckAxis(table_, tokens_[at_]));
        slot.axes.push_back(tokens_[at_++]);
      }
      factor.slots.push_back(std::move(slot));
    } while (at_ < tokens_.size() && tokens_[at_] == "|");
    if (at_ == tokens_.size()) return TableError("direct sum has no '}'");
    ++at_;  // "}"
    return factor;
  }

  const LayoutTable& table_;
  const std::vector<std::string>& tokens_;
  std::size_t at_ = 0;
};

}  // namespace

Result<ParsedShape> ParseShape(const LayoutTable& table, std::string_view text) {
  ParsedShape shape;
  shape.tokens = ShapeTokens(text);
  CKPT_ASSIGN_OR_RETURN(shape.dims, ShapeParser(table, shape.tokens).Parse());
  return shape;
}

}  // namespace ckpt::layout
