// Match: the tensors a checkpoint has against the layouts it may have.
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
  std::uint32_t position = 0;  // in the tensors given
  std::string reason;
  bool is_bookkeeping = false;  // see IgnoreRule
};

// A source checkpoint understood.
struct SourceMatch {
  static constexpr std::uint32_t kAbsent = 0xffffffff;

  ResolvedLayout layout;                 // with the prefix and the choices that were found
  std::vector<std::uint32_t> positions;  // of each layout tensor in the tensors given, or kAbsent
  std::vector<IgnoredKey> ignored;
  // Layout tensors (positions in layout.tensors) that copy others and are there: they must hold the same bytes.
  std::vector<std::uint32_t> derived_present;
  // Everything wrong, in the order of the layout, then of the keys: kMissing, kShapeMismatch, kUnmapped.
  std::vector<Problem> problems;
};

// Finds the prefix and the form (of those that agree with `fixed`) whose names fit best, and reports all that does not
// fit.
//
// Errors: those of ResolveExactly, if no form of the format can hold the model.
Result<SourceMatch> MatchSource(const LayoutTable& table, std::string_view format,
                                const Configuration& config, std::span<const GlobalTensor> tensors,
                                const Choices& fixed = {});

// The dtype each target tensor takes over from its sources; where they differ, the smallest that holds the values of all.
// Parts that only zeros fill, or whose sources are absent, have no say; a tensor without any has that of the one before it.
struct TargetDtypes {
  std::vector<DType> dtypes;      // parallel to the target's tensors
  std::vector<Problem> mixed;     // kDtypeMismatch for every tensor whose sources differ
  std::vector<Problem> problems;  // and for those where no dtype holds the values of all
};
[[nodiscard]] TargetDtypes InheritDtypes(const Composition& composition,
                                         const ResolvedLayout& target, const SourceMatch& source,
                                         std::span<const GlobalTensor> tensors);

}  // namespace ckpt::layout

#endif  // CKPT_CORE_LAYOUT_MATCH_H_
