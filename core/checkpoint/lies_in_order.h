// Whether stored bytes are a tensor's elements as a reader wants them.
#ifndef CKPT_CORE_CHECKPOINT_LIES_IN_ORDER_H_
#define CKPT_CORE_CHECKPOINT_LIES_IN_ORDER_H_

#include "core/checkpoint/source.h"
#include "core/tensor/shape.h"

namespace ckpt {

// Whether the bytes of an array of these sizes, from the first on, are its elements in C order: in
// no other order of bytes, and without torch's lazy negative or conjugate.
[[nodiscard]] bool LiesInOrder(const StoredArray& array, DimsView sizes);

}  // namespace ckpt

#endif  // CKPT_CORE_CHECKPOINT_LIES_IN_ORDER_H_
