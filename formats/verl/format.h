// The model that verl's FSDP workers save: one torch.save file a rank.
#ifndef CKPT_FORMATS_VERL_FORMAT_H_
#define CKPT_FORMATS_VERL_FORMAT_H_

#include "formats/format.h"

namespace ckpt::verl {

extern const Format kFormat;

}  // namespace ckpt::verl

#endif  // CKPT_FORMATS_VERL_FORMAT_H_
