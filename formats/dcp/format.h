// torch.distributed.checkpoint's folders: .metadata and *.distcp.
#ifndef CKPT_FORMATS_DCP_FORMAT_H_
#define CKPT_FORMATS_DCP_FORMAT_H_

#include "formats/format.h"

namespace ckpt::dcp {

extern const Format kFormat;

}  // namespace ckpt::dcp

#endif  // CKPT_FORMATS_DCP_FORMAT_H_
