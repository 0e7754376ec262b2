// Why a checkpoint does not fit its model: one error that names the cause, where there is one.
#ifndef CKPT_CONVERTERS_VERBS_INTERNAL_EXPLAIN_MISMATCH_H_
#define CKPT_CONVERTERS_VERBS_INTERNAL_EXPLAIN_MISMATCH_H_

#include <span>
#include <vector>

#include "converters/verbs/internal/offered_tensors.h"
#include "converters/verbs/model_source.h"
#include "core/base/status.h"
#include "core/checkpoint/index.h"
#include "core/layout/match.h"

namespace ckpt {

// Weights in the blocks and scales of a quantisation method are not elements that a layout could
// place. A checkpoint of decoded weights may still have the published configuration. Errors:
// kUnsupported.
Status RefuseQuantised(const ModelSource& model, const Offered& offered);

// A weight that is stored as codes beside its scales, by the names that quantisation methods give
// to these. Null: there is none.
[[nodiscard]] const GlobalTensor* FindQuantised(std::span<const GlobalTensor> tensors);

// Far more layers or experts than the tensors can have: to look for their names in every form would
// take minutes. `tensors` are those that may be of the model. Errors: kShapeMismatch.
Status RefuseCounts(const ModelSource& model, std::span<const GlobalTensor> tensors);

// The error for `problems`, which are what is wrong with `match` of the `offered` tensors, the best
// of the naming that was asked for. It names tensors as the source has them:
//   kUsage           the tensors have the names of another naming: the source is of another kind
//   kUnmapped        no tensor has a name of the family
//   kMissing, kUnmapped, kShapeMismatch
//                    one setting of the configuration, if it were another, would make everything
//                    fit: a size, a number of layers or experts, or a switch
//   kUnsupported     by the arguments of a run, its weights lie otherwise than others'
//   else the problems as they are, with a hint where all of them are keys beside a whole model, or
//   where the arguments of a run say what model it is.
Status ExplainMismatch(const ModelSource& model, const OpenModelOptions& options,
                       const layout::SourceMatch& match, const Offered& offered,
                       std::vector<Problem> problems);

}  // namespace ckpt

#endif  // CKPT_CONVERTERS_VERBS_INTERNAL_EXPLAIN_MISMATCH_H_
