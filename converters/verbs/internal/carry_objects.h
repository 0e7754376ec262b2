// The objects of a source in a target with weights: which of them it holds, and why it does not
// hold the others.
#ifndef CKPT_CONVERTERS_VERBS_INTERNAL_CARRY_OBJECTS_H_
#define CKPT_CONVERTERS_VERBS_INTERNAL_CARRY_OBJECTS_H_

#include <vector>

#include "converters/verbs/convert.h"
#include "converters/verbs/model_source.h"
#include "core/base/result.h"
#include "core/training/run_format.h"
#include "formats/format.h"
#include "formats/weights_request.h"

namespace ckpt {

// What the source's files said besides tensors is written again with them. So it is not left out,
// unless the source has another value for it. Errors: those of reading an object.
Status CountTextsOfShards(const std::vector<SideText>& texts, ModelSource& model);

// Reads the objects of the source for a target that holds them. They are not left out then. Errors:
// those of reading an object, unless it is too large: then it is left out.
Status CarryObjects(const Format& target, const OpenModelOptions& options, ModelSource& model,
                    WeightsRequest& request);

// Whoever names an object to rename it expects it in the target. Call it after CarryObjects.
// Errors: kUsage.
Status CheckRenamedObjects(const OpenModelOptions& options, const ModelSource& model,
                           const WeightsRequest& request);

// Where the target's tensors and objects stood in the source, by their new keys. Renamed ones stand
// on top. If they make no one object, this is not kept, and a warning says so; so it does of lists
// that a target's writer does not keep (ListsLostToTorch). Call it after CarryObjects.
void KeepPaths(const Format& target, const OpenModelOptions& options, PreparedConversion& prepared,
               WeightsRequest& request);

// Where the objects that go along with a run stood in the source. If they make no one object, this
// is not kept, and a warning says so. Small tensors that such objects are not whole without, such
// as rates of a scheduler, go along, too; others of them are left out. Errors: those of the
// system.
Status KeepCarried(const Format& target, PreparedConversion& prepared, RunRequest& request);

// Takes the source's attributes (CheckpointSource::Attributes) along with their mappings, or lists
// them as left out. Call it after KeepPaths. Errors: those of reading one.
Status CarryAttributes(const Format& target, ModelSource& model, WeightsRequest& request);

}  // namespace ckpt

#endif  // CKPT_CONVERTERS_VERBS_INTERNAL_CARRY_OBJECTS_H_
