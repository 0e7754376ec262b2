// Plans what `torch.distributed.checkpoint.load` puts into the state dicts of an FSDP2 program.
#ifndef CKPT_FORMATS_FSDP2_INTERNAL_WRITER_H_
#define CKPT_FORMATS_FSDP2_INTERNAL_WRITER_H_

#include "core/base/result.h"
#include "core/checkpoint/write_plan.h"
#include "core/training/run_format.h"
#include "formats/weights_request.h"

namespace ckpt::fsdp2 {

//   .metadata, __0_<n>.distcp   model.<parameter>
//   hf_assets/                  the side files
//
// Where there are none, the object run.args says what model it is. Errors: those of dcp::PlanDcp.
Result<PlannedCheckpoint> PlanWeights(WeightsRequest request);

// A run for a container of another format: its tensors, StepTensors and RunObjects, and what goes
// along. Errors: none.
Result<RunEntries> EntriesOfRun(RunRequest& request);

// The same directory with the entries of a run.
//
// Errors: those of dcp::PlanDcp.
Result<WritePlan> PlanRun(RunRequest request);

}  // namespace ckpt::fsdp2

#endif  // CKPT_FORMATS_FSDP2_INTERNAL_WRITER_H_
