// A torch.distributed.checkpoint folder as training loops with FSDP2 save it: a model's state dict
// and its optimizer's, as torch.distributed.checkpoint.state_dict names them.
#ifndef CKPT_FORMATS_FSDP2_FORMAT_H_
#define CKPT_FORMATS_FSDP2_FORMAT_H_

#include "formats/format.h"

namespace ckpt::fsdp2 {

extern const Format kFormat;
// The same state dicts in one file of torch.save.
extern const Format kFormatOfFile;

}  // namespace ckpt::fsdp2

#endif  // CKPT_FORMATS_FSDP2_FORMAT_H_
