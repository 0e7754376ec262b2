// What a conversion writes: the tensors of the target, and the plan of all its files.
#ifndef CKPT_CONVERTERS_VERBS_INTERNAL_PLAN_TARGET_H_
#define CKPT_CONVERTERS_VERBS_INTERNAL_PLAN_TARGET_H_

#include "converters/verbs/convert.h"
#include "converters/verbs/model_source.h"
#include "converters/verbs/training_state.h"
#include "core/base/result.h"
#include "core/io/storage.h"
#include "formats/format.h"
#include "formats/weights_request.h"

namespace ckpt {

// The source's tensors under the target's names, with the target's copies and dtypes. Fills in
// `origin` and `changes_dtype`, adds to `warnings`. Errors: those of ViewModel; kUsage (--keep-fp32
// matches nothing).
Result<ModelView> ViewTarget(const ConvertOptions& options, PreparedConversion& prepared);

// Every file of a target with weights. Fills in `left_out_files` and `links`, adds to `warnings`.
// Errors: those of PlanWeights and CarrySideFiles; kUsage (parity of one file).
Result<PlannedCheckpoint> PlanTarget(Storage& storage, const ConvertOptions& options,
                                     const Format& target, const ModelView& view,
                                     PreparedConversion& prepared);

// Every file of a target with a training run. Adds the optimizer to `view`, fills in
// `left_out_files`, adds to what the model leaves out. Errors: those of RunForTarget and
// RunFormat::plan.
Result<PlannedCheckpoint> PlanRunTarget(Storage& storage, const ConvertOptions& options,
                                        const TrainingState& state, ModelView& view,
                                        PreparedConversion& prepared);

}  // namespace ckpt

#endif  // CKPT_CONVERTERS_VERBS_INTERNAL_PLAN_TARGET_H_
