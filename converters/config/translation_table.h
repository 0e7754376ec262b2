// Configurations translated by a table of `NAME = EXPR` lines.
#ifndef CKPT_CONVERTERS_CONFIG_TRANSLATION_TABLE_H_
#define CKPT_CONVERTERS_CONFIG_TRANSLATION_TABLE_H_

#include <functional>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/base/result.h"
#include "core/layout/definitions.h"
#include "core/layout/expr.h"
#include "core/layout/layout_table.h"
#include "core/layout/value.h"

namespace ckpt {

// Names and values in a fixed order.
using NamedValues = std::vector<std::pair<std::string, layout::Value>>;

// One table: `let NAME = EXPR` definitions, `require EXPR "what is wrong otherwise" [expect "what
// is right"]` and `include FILE` lines, and `NAME = EXPR` lines, which make the output in their
// order. `store NAME = EXPR` lines make it a table of two directions: they compute an input from
// the outputs, for the way back. An output that no such line mentions is an input of the same name.
// `one_way NAME …` lines list outputs that are written and never read back.
//
// `closed NAME …` lines require that the table reads every member of an object of the input, except
// those that a `neutral NAME …` line lists by their dotted names. A table with `nullable NAME …`
// lines requires that no input that it reads is null, except those in the lines.
class TranslationTable {
 public:
  // `facts`: definitions that stand before those of the table. Errors: kBadMetadata (syntax, a name
  // twice; with file and line), and those of `includes`.
  static Result<TranslationTable> Parse(std::string_view text, std::string_view name,
                                        const layout::IncludeResolver& includes = {},
                                        const layout::Definitions& facts = {});

  // Errors, with the name of the line: kUnsupported (a requirement does not hold, a closed object
  // has members that nothing reads, a null that is not nullable; all of them), those of
  // Expr::Evaluate.
  [[nodiscard]] Result<NamedValues> Translate(const layout::Configuration& config) const;
  // The same as a configuration, without what is null.
  [[nodiscard]] Result<layout::Configuration> TranslatePresent(
      const layout::Configuration& config) const;
  // The same without checking the requirements.
  [[nodiscard]] Result<layout::Configuration> TranslateUnchecked(
      const layout::Configuration& config) const;

  // The other direction: an input whose translation is `output`, as far as the lines can express
  // it. Errors: those of Expr::Evaluate, naming the line's name.
  [[nodiscard]] Result<NamedValues> Invert(const layout::Configuration& output) const;
  // Whether a `one_way` line lists the name.
  [[nodiscard]] bool IsOneWay(std::string_view name) const { return one_way_.contains(name); }

 private:
  struct Requirement {
    layout::Expr condition;
    std::string otherwise;
    std::string expected;  // in the words of the source's settings; may be empty
  };
  struct Line {
    std::string name;
    layout::Expr value;
  };
  Status ParseInto(std::string_view text, std::string_view name,
                   const layout::IncludeResolver& includes, int depth);
  Status ParseRequirement(std::string_view text);
  Status ParseLine(std::string_view line, const layout::IncludeResolver& includes, int depth);
  [[nodiscard]] Status CheckRequirements(const layout::Configuration& config,
                                         const layout::DefinedNames& names) const;
  [[nodiscard]] Status CheckClosed(const layout::Configuration& config) const;
  [[nodiscard]] Status CheckNulls(const layout::Configuration& config) const;
  // Names that some line reads.
  [[nodiscard]] std::set<std::string> NamesRead() const;

  layout::Definitions definitions_;
  std::vector<Requirement> requirements_;
  std::vector<Line> lines_;
  std::vector<Line> stores_;
  std::set<std::string, std::less<>> one_way_;
  std::set<std::string, std::less<>> closed_;
  std::set<std::string, std::less<>> neutral_;
  std::set<std::string, std::less<>> nullable_;
};

// A table of this folder by its file name. Errors: kInternal (there is none), and those of
// TranslationTable::Parse.
Result<TranslationTable> LoadBuiltInTranslation(std::string_view name,
                                                const layout::Definitions& facts = {});
// The same, over what `hf_config` says of its model (FactsOf).
Result<TranslationTable> LoadTranslationOf(const layout::Configuration& hf_config,
                                           std::string_view name);

}  // namespace ckpt

#endif  // CKPT_CONVERTERS_CONFIG_TRANSLATION_TABLE_H_
