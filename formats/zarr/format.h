// What older Megatron-Core's dist_checkpointing saves: a zarr array for each tensor.
#ifndef CKPT_FORMATS_ZARR_FORMAT_H_
#define CKPT_FORMATS_ZARR_FORMAT_H_

#include "formats/format.h"

namespace ckpt::zarr {

extern const Format kFormat;

}  // namespace ckpt::zarr

#endif  // CKPT_FORMATS_ZARR_FORMAT_H_
