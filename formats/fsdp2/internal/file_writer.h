// Plans what a program of torch saves of an FSDP2 run in one file, after it gathered the state
// dicts (full_state_dict).
#ifndef CKPT_FORMATS_FSDP2_INTERNAL_FILE_WRITER_H_
#define CKPT_FORMATS_FSDP2_INTERNAL_FILE_WRITER_H_

#include "core/base/result.h"
#include "formats/weights_request.h"

namespace ckpt::fsdp2 {

// {"model": {parameter: tensor}, "run": {"args": {…}}}: run.args says what model it is. Of a run,
// its entries besides, every one where `request.paths` say.
//
// Errors: those of torch_save's planner.
Result<PlannedCheckpoint> PlanFile(WeightsRequest request);

}  // namespace ckpt::fsdp2

#endif  // CKPT_FORMATS_FSDP2_INTERNAL_FILE_WRITER_H_
