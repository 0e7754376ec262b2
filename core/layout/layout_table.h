// Layout tables: where each logical tensor of a model family lies, in every naming.
//
// A logical tensor has named axes. A rule binds each axis either in the tensor's name
// (`layers.<l>.`) or in its shape (`(g {q: j | k | v} d) h`). docs/formats/layout-tables.md
// describes the syntax.
#ifndef CKPT_CORE_LAYOUT_LAYOUT_TABLE_H_
#define CKPT_CORE_LAYOUT_LAYOUT_TABLE_H_

#include <functional>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/base/result.h"
#include "core/layout/definitions.h"
#include "core/layout/expr.h"

namespace ckpt::layout {

// Position of a logical tensor in LayoutTable::logicals.
using LogicalId = std::uint32_t;
// In a slot of a direct sum: elements that no logical tensor has. They read as zero and are
// dropped.
inline constexpr LogicalId kZeros = 0xffffffff;

// `dim h = hidden_size`, with `min 0` if an empty axis makes sense.
struct AxisExtent {
  std::string definition;  // name of the definition that computes it
  std::int64_t min = 1;
};

// `logical attn.q [l g j d h] when expr`. The condition may read one of the axes, usually a layer
// number.
struct LogicalTensor {
  std::string name;
  std::vector<std::string> axes;  // canonical order, outermost first
  std::optional<Expr> when;
  std::optional<std::string> when_axis;
};

// One alternative of a direct sum: `attn.q: j`.
struct Slot {
  LogicalId logical = 0;
  std::vector<std::string> axes;
};
// A factor of a shape's dim: an axis, or a direct sum of slots in order.
struct Factor {
  std::string axis;  // if `slots` is empty
  std::vector<Slot> slots;
};
// One dim of a shape: a product of factors, outermost first.
using DimRule = std::vector<Factor>;

// A piece of a tensor's name: literal text, then the number of an axis unless `axis` is empty.
struct NamePart {
  std::string text;
  std::string axis;
  std::int64_t plus = 0;
};

// `model.layers.<l>.mlp.up_proj.weight : f h = mlp.up when …`
struct TensorRule {
  std::vector<NamePart> name;
  std::vector<std::string> name_axes;  // distinct, in order
  std::vector<DimRule> dims;
  std::optional<LogicalId> logical;  // only without a direct sum
  std::vector<Expr> when;  // all must hold: the rule's own, and that of the `if` around it
  // A copy of elements that another rule holds, such as the head of a tied embedding. Axes that
  // only its name has count copies.
  bool derived = false;
  bool expected = false;  // `… derived expected`: readers want the copy
  // `object NAME : AXES = LOGICAL`: no tensor, but objects in a grid of these axes, wherever the
  // model has the logical tensor.
  bool is_object = false;
  int line = 0;
};

// `choice expert_layout published | fused`: a name that conditions compare with one of its values.
// `source_choice`: only sources have other values than the first.
struct Choice {
  std::string name;
  std::vector<std::string> values;
  bool is_of_sources = false;
};

// `ignore optimizer.* "why"`: keys that a source may have in addition. `bookkeeping args "why"`:
// such keys that are not worth reporting. `*` matches any text; `<name>` is replaced by the value
// of a definition.
struct IgnoreRule {
  std::string pattern;
  std::string reason;
  bool is_bookkeeping = false;
};

// `strip model. "what the source is" when EXPR`: if the condition holds, names are read without
// this prefix.
struct StripRule {
  std::string text;
  std::string reason;
  Expr when;
};

// `extra l from num_hidden_layers counted by KEY`: numbers of an axis, behind those that every
// model has. The key of the configuration says how many there are. A checkpoint may have none of
// them whatever the key says.
struct ExtraNumbers {
  std::string axis;
  Expr from;
  std::string key;
};

// `extra decoder.layers.<l>. = mtp.layers.<l>.layer. when EXPR`: how names of a naming begin for
// the extra numbers, which it counts from 0.
struct ExtraName {
  std::string before;  // the number
  std::string behind;
  std::string before_extra;
  std::string behind_extra;
  std::optional<Expr> when;
};

struct Naming {
  std::string id;
  std::vector<std::string> prefixes;  // the first is the one written; never empty
  std::vector<StripRule> strips;
  std::vector<ExtraName> extra_names;
  bool leaves_out_extra = false;  // `without extra`: it has no names for the extra numbers
  std::vector<Choice> choices;
  std::vector<TensorRule> rules;
  std::vector<IgnoreRule> ignores;
};

struct LayoutTable {
  std::string name;           // the family's name
  std::optional<Expr> match;  // whether a configuration belongs to it
  Definitions definitions;    // `let` and `dim`
  std::map<std::string, AxisExtent, std::less<>> axes;
  std::map<std::string, std::vector<std::string>, std::less<>> splits;
  std::optional<ExtraNumbers> extra;
  std::vector<LogicalTensor> logicals;
  std::vector<Naming> namings;

  // nullptr if there is none.
  [[nodiscard]] const Naming* FindNaming(std::string_view id) const;
  // The finest axes that `axis` is split into, outermost first; itself if it is not split.
  [[nodiscard]] std::vector<std::string> Atoms(std::string_view axis) const;
};

// Gives the text of a file that a table includes. Errors: kNotFound.
using IncludeResolver = std::function<Result<std::string>(std::string_view name)>;

// `name` (a path) appears in errors. Every rule is checked: the name or the shape must bind each
// axis of a logical tensor exactly once.
//
// Errors: kBadMetadata (syntax, an unknown axis or logical tensor, an axis bound never or twice, a
// rule that its naming has already; with file and line), kResource (includes nested too deeply),
// and those of `includes`.
Result<LayoutTable> ParseLayoutTable(std::string_view text, std::string_view name,
                                     const IncludeResolver& includes = {});

}  // namespace ckpt::layout

#endif  // CKPT_CORE_LAYOUT_LAYOUT_TABLE_H_
