// Plans one file with the tensors and the objects of a checkpoint.
#ifndef CKPT_FORMATS_TORCH_SAVE_INTERNAL_WRITER_H_
#define CKPT_FORMATS_TORCH_SAVE_INTERNAL_WRITER_H_

#include "core/base/result.h"
#include "formats/weights_request.h"

namespace ckpt::torch_save {

// A file as torch.save writes a state dict (state_file.h): tensors and objects by their keys, or
// where they stood in a nested object.
//
// Errors: kUsage (compression, several files), those of PlanStateFile and PickleCarried.
Result<PlannedCheckpoint> PlanStateDict(WeightsRequest request);

}  // namespace ckpt::torch_save

#endif  // CKPT_FORMATS_TORCH_SAVE_INTERNAL_WRITER_H_
