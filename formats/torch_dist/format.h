// What Megatron-Core's dist_checkpointing saves: a DCP folder with metadata.json.
#ifndef CKPT_FORMATS_TORCH_DIST_FORMAT_H_
#define CKPT_FORMATS_TORCH_DIST_FORMAT_H_

#include "formats/format.h"

namespace ckpt::torch_dist {

extern const Format kFormat;

}  // namespace ckpt::torch_dist

#endif  // CKPT_FORMATS_TORCH_DIST_FORMAT_H_
