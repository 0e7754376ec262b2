// Plans what a program of torch saves of an FSDP2 run in one file, after it gathered the state dicts
// (full_state_dict).
#ifndef CKPT_FORMATS_FSDP2_INTERNAL_FILE_WRITER_H_
#define CKPT_FORMATS_FSDP2_INTERNAL_FILE_WRITER_H_

#include "core/base/result.h"
#include "core/checkpoint/write_plan.h"
#include "core/training/run_format.h"
#include "formats/weights_request.h"

namespace ckpt::fsdp2 {

// {"model": {parameter: tensor}, "run": {"args": {…}}}: run.args says what model it is.
//
// Errors: those of torch_save::CheckIsOneFile and PlanStateFile.
Result<PlannedCheckpoint> PlanWeightsFile(WeightsRequest request);

// {"model": …, "optim": …, "lr_scheduler": …, "run": …}: every entry where RunPath says.
//
// Errors: the same.
Result<WritePlan> PlanRunFile(RunRequest request);

}  // namespace ckpt::fsdp2

#endif  // CKPT_FORMATS_FSDP2_INTERNAL_FILE_WRITER_H_
