// Match: compares the tensors of a checkpoint with the layouts that it may have.
#ifndef CKPT_CORE_LAYOUT_MATCH_H_
#define CKPT_CORE_LAYOUT_MATCH_H_

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/base/result.h"
#include "core/checkpoint/index.h"
#include "core/layout/compose.h"
#include "core/layout/layout_table.h"
#include "core/layout/resolve.h"
#include "core/layout/value.h"

namespace ckpt::layout {

struct IgnoredKey {
  std::uint32_t position = 0;  // among the given tensors
  std::string reason;
  bool is_bookkeeping = false;  // see IgnoreRule
};

// What was found out about a source checkpoint.
struct SourceMatch {
  static constexpr std::uint32_t kAbsent = 0xffffffff;

  ResolvedLayout layout;  // with the prefix and the choices that were found
  // Of each layout tensor: its position among the given tensors, or kAbsent.
  std::vector<std::uint32_t> positions;
  std::vector<IgnoredKey> ignored;
  // Layout tensors (positions in layout.tensors) that are copies of others and present in the
  // checkpoint: they must hold the same bytes.
  std::vector<std::uint32_t> derived_present;
  // The configuration counts numbers of LayoutTable::extra, and the checkpoint has none: `layout`
  // is of a model without them.
  bool lacks_extra = false;
  // Everything that is wrong: in the order of the layout, then of the keys. kMissing,
  // kShapeMismatch, kUnmapped.
  std::vector<Problem> problems;
};

// Finds the prefix and the form whose names fit best, among the forms that agree with `fixed`, and
// reports everything that does not fit.
//
// Errors: those of ResolveExactly, if no form of the naming can hold the model.
Result<SourceMatch> MatchSource(const LayoutTable& table, std::string_view naming,
                                const Configuration& config, std::span<const GlobalTensor> tensors,
                                const Choices& fixed = {});

// The dtype that each target tensor gets from its sources. If sources differ, it is the smallest
// dtype that holds the values of all. Parts that are zeros, or whose sources are absent, do not
// count. If nothing counts, the tensor gets the dtype of the tensor before it.
struct TargetDtypes {
  std::vector<DType> dtypes;      // parallel to the target's tensors
  std::vector<Problem> mixed;     // kDtypeMismatch for every tensor whose sources differ
  std::vector<Problem> problems;  // for those where no dtype holds the values of all
};
[[nodiscard]] TargetDtypes InheritDtypes(const Composition& composition,
                                         const ResolvedLayout& target, const SourceMatch& source,
                                         std::span<const GlobalTensor> tensors);

}  // namespace ckpt::layout

#endif  // CKPT_CORE_LAYOUT_MATCH_H_
