// Plans one file with the tensors of a checkpoint.
#ifndef CKPT_FORMATS_TORCH_SAVE_INTERNAL_WRITER_H_
#define CKPT_FORMATS_TORCH_SAVE_INTERNAL_WRITER_H_

#include "core/base/result.h"
#include "formats/weights_request.h"

namespace ckpt::torch_save {

// A file as torch.save writes a state dict: a dict of tensors by their keys, each of which has a
// storage of its own, with the checksums of all bytes.
//
// Errors: kUsage (compression, several files), and those of CountTargetBytes.
Result<PlannedCheckpoint> PlanStateDict(WeightsRequest request);

}  // namespace ckpt::torch_save

#endif  // CKPT_FORMATS_TORCH_SAVE_INTERNAL_WRITER_H_
