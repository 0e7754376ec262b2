// Statements of a layout table about namings: what they are called, their forms and their rules.
#ifndef CKPT_CORE_LAYOUT_INTERNAL_NAMING_PARSER_H_
#define CKPT_CORE_LAYOUT_INTERNAL_NAMING_PARSER_H_

#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/base/result.h"
#include "core/layout/expr.h"
#include "core/layout/layout_table.h"

namespace ckpt::layout {

// Errors of all methods: kBadMetadata.
class NamingParser {
 public:
  // Adds what it parses to `table`, which must outlive this, and says what the rules refer to.
  explicit NamingParser(LayoutTable& table) : table_(table) {}

  // Where the next statement stands. `file` must outlive its parsing.
  void StandAt(std::string_view file, int line) {
    file_ = file;
    line_ = line;
  }
  // The statement that `word` begins; nothing if there is none of namings.
  std::optional<Status> Parse(std::string_view word, std::string_view rest);
  // NAME : axes {= LOGICAL} {derived {expected}} {when expr}
  Status ParseRule(std::string_view name, std::string_view text, bool is_object = false);
  // Ends the table.
  Status Finish();

 private:
  struct Stack {
    std::string axis;
    Expr when;
    Expr otherwise;
    std::vector<TensorRule> apart;  // rules for `otherwise`
  };

  Status ParseNaming(std::string_view id);
  Status ParseIf(std::string_view text);
  Status ParseStack(std::string_view text);
  Status ParseEnd(std::string_view text);
  Status ParsePrefix(std::string_view text);
  Status ParseChoice(std::string_view text, bool is_of_sources);
  Status ParseStrip(std::string_view text);
  Status ParseExtraName(std::string_view text);
  Status ParseWithout(std::string_view text);
  Status CheckExtraIsNew();
  Status ParseIgnore(std::string_view text, bool is_bookkeeping);
  Status ParseObject(std::string_view text);
  Result<TensorRule> ReadRule(std::string_view name, std::string_view text,
                              const std::optional<Expr>& around, bool is_object);
  Status ParseName(std::string_view text, TensorRule& rule) const;
  Status SayOnce(const TensorRule& rule, const std::vector<std::string>& shape,
                 std::string_view name);
  Status SayOnce(std::vector<std::string> said, std::string_view name);
  Result<Naming*> CurrentNaming();

  LayoutTable& table_;
  std::vector<IgnoreRule> ignores_;                       // of every naming
  std::optional<Expr> enclosing_;                         // of the `if` that is open
  std::optional<Stack> stack_;                            // that is open
  std::map<std::vector<std::string>, std::string> said_;  // what rules say → file and line
  std::string_view file_;
  int line_ = 0;
};

}  // namespace ckpt::layout

#endif  // CKPT_CORE_LAYOUT_INTERNAL_NAMING_PARSER_H_
