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
  Dims dims;  // of the result: an integer index removes its dim
};

// "0:2,3", ":,-1", "": one entry a dim from the left, the rest is whole. Ranges are clipped to the
// dim, negative numbers count from its end, as numpy does.
//
// Errors: kUsage (not of this form, a step, more entries than dims), kOutOfRange (an integer index
// outside its dim).
Result<Slice> ParseSlice(std::string_view text, DimsView shape);

}  // namespace ckpt::inspect

#endif  // CKPT_TOOLS_CKPT_INSPECT_SLICE_H_
