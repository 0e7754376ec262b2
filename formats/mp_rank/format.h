// The files that Megatron's ranks save by themselves (`--ckpt-format torch`) as a format: read
// alone.
#ifndef CKPT_FORMATS_MP_RANK_FORMAT_H_
#define CKPT_FORMATS_MP_RANK_FORMAT_H_

#include "formats/format.h"

namespace ckpt::mp_rank {

extern const Format kFormat;

}  // namespace ckpt::mp_rank

#endif  // CKPT_FORMATS_MP_RANK_FORMAT_H_
