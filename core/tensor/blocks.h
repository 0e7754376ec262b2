// Cuts a box into pieces that are contiguous in its C order.
#ifndef CKPT_CORE_TENSOR_BLOCKS_H_
#define CKPT_CORE_TENSOR_BLOCKS_H_

#include <functional>

#include "core/base/status.h"
#include "core/tensor/box.h"

namespace ckpt {

// Calls `visit` with boxes that tile `box`, in C order. Each is contiguous in the C order of `box`
// and has at most `max_elements` elements (but at least one). Stops at the first error. An empty
// box gives no call.
Status ForEachBlock(const Box& box, std::int64_t max_elements,
                    const std::function<Status(const Box& block)>& visit);

// The first of them. REQUIRES: the box is not empty.
[[nodiscard]] Box FirstBlock(Box box, std::int64_t max_elements);

}  // namespace ckpt

#endif  // CKPT_CORE_TENSOR_BLOCKS_H_
