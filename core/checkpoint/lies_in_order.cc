#include "core/checkpoint/lies_in_order.h"

#include <cstddef>

namespace ckpt {

bool LiesInOrder(const StoredArray& array, DimsView sizes) {
  const Dims strides = ContiguousStrides(sizes);
  for (std::size_t d = 0; d < strides.size(); ++d) {
    if (sizes[d] > 1 && array.strides[d] != strides[d]) return false;
  }
  return !array.byte_swapped && !array.negated && !array.conjugated;
}

}  // namespace ckpt
