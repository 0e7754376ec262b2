// A part of a tensor, written as in numpy.
#ifndef CKPT_TOOLS_CKPT_INSPECT_SLICE_H_
#define CKPT_TOOLS_CKPT_INSPECT_SLICE_H_

#include <string_view>

#include "core/base/result.h"
#include "core/tensor/box.h"
#include "core/tensor/shape.h"

namespace ckpt::inspect {

struct Slice {
  Box box;    // what to read; an integer index is one element wide
  Dims dims;  // the result's dims: an integer index removes its dim
};

// "0:2,3", ":,-1", "": one entry per dim from the left; the remaining dims are whole. As in numpy,
// ranges are clipped to the dim, and negative numbers count from its end.
//
// Errors: kUsage (not of this form, a step, more entries than dims, an integer index outside its
// dim, or all of a range that has any).
Result<Slice> ParseSlice(std::string_view text, DimsView shape);

}  // namespace ckpt::inspect

#endif  // CKPT_TOOLS_CKPT_INSPECT_SLICE_H_
