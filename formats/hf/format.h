// A repository as the Hugging Face hub has them: config.json, and weights in safetensors or
// torch.save files.
#ifndef CKPT_FORMATS_HF_FORMAT_H_
#define CKPT_FORMATS_HF_FORMAT_H_

#include "formats/format.h"

namespace ckpt::hf {

extern const Format kFormat;

}  // namespace ckpt::hf

#endif  // CKPT_FORMATS_HF_FORMAT_H_
