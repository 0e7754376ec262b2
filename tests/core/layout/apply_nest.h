// Loop nests executed one element at a time: the oracle of layout tests.
#ifndef CKPT_TESTS_CORE_LAYOUT_APPLY_NEST_H_
#define CKPT_TESTS_CORE_LAYOUT_APPLY_NEST_H_

#include <cstring>

#include "core/base/bytes.h"
#include "core/layout/affine.h"
#include "core/tensor/shape.h"

namespace ckpt::testing {

// Calls visit(target index, source index) for every element the nest copies.
template <typename Visit>
void ForEachElement(const layout::Nest& nest, const Visit& visit) {
  Dims counters(nest.loops.size(), 0);
  while (true) {
    Dims target = nest.target_origin;
    Dims source = nest.source_origin;
    for (std::size_t k = 0; k < counters.size(); ++k) {
      const layout::Loop& loop = nest.loops[k];
      target[static_cast<std::size_t>(loop.target_dim)] += counters[k] * loop.target_step;
      if (!source.empty()) {
        source[static_cast<std::size_t>(loop.source_dim)] += counters[k] * loop.source_step;
      }
    }
    visit(target, source);
    std::size_t k = counters.size();
    while (k > 0 && ++counters[k - 1] == nest.loops[k - 1].extent) counters[--k] = 0;
    if (k == 0) return;
  }
}

inline std::size_t LinearIndex(const Dims& index, const Dims& shape) {
  std::int64_t linear = 0;
  for (std::size_t d = 0; d < shape.size(); ++d) linear = linear * shape[d] + index[d];
  return static_cast<std::size_t>(linear);
}

inline void ApplyNest(const layout::Nest& nest, ByteSpan source, const Dims& source_shape,
                      Bytes& target, const Dims& target_shape, std::size_t element_bytes) {
  ForEachElement(nest, [&](const Dims& to, const Dims& from) {
    std::memcpy(target.data() + LinearIndex(to, target_shape) * element_bytes,
                source.data() + LinearIndex(from, source_shape) * element_bytes, element_bytes);
  });
}

}  // namespace ckpt::testing

#endif  // CKPT_TESTS_CORE_LAYOUT_APPLY_NEST_H_
