// A torch.save file, or files of it that an index joins.
#ifndef CKPT_FORMATS_TORCH_SAVE_FORMAT_H_
#define CKPT_FORMATS_TORCH_SAVE_FORMAT_H_

#include "formats/format.h"

namespace ckpt::torch_save {

extern const Format kFormat;

}  // namespace ckpt::torch_save

#endif  // CKPT_FORMATS_TORCH_SAVE_FORMAT_H_
