// What Megatron-FSDP saves: a DCP folder with names of its own, under a root that a tracker belongs
// to.
#ifndef CKPT_FORMATS_FSDP_DTENSOR_FORMAT_H_
#define CKPT_FORMATS_FSDP_DTENSOR_FORMAT_H_

#include "formats/format.h"

namespace ckpt::fsdp_dtensor {

extern const Format kFormat;

}  // namespace ckpt::fsdp_dtensor

#endif  // CKPT_FORMATS_FSDP_DTENSOR_FORMAT_H_
