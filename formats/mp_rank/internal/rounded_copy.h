// Whether a tensor is a rounded copy of another one: a proof that what an optimizer keeps belongs
// to a weight.
#ifndef CKPT_FORMATS_MP_RANK_INTERNAL_ROUNDED_COPY_H_
#define CKPT_FORMATS_MP_RANK_INTERNAL_ROUNDED_COPY_H_

#include "core/base/result.h"
#include "formats/torch_save/tensor_rebuild.h"

namespace ckpt::mp_rank {

// Compares some elements at the beginning and the end. Arrays that are not read in one piece, and
// dtypes that are not converted, are not compared. Checksums of the file are not looked at.
//
// REQUIRES: equal shapes. Errors: kValueMismatch (with the element), kTruncated, kIo.
// Cost: four small reads.
Status CheckIsRounded(const torch_save::RebuiltTensor& weight,
                      const torch_save::RebuiltTensor& exact);

}  // namespace ckpt::mp_rank

#endif  // CKPT_FORMATS_MP_RANK_INTERNAL_ROUNDED_COPY_H_
