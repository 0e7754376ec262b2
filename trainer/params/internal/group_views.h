// The parts of a group's flat array as tensors, for the sources of ParamStore.
#ifndef CKPT_TRAINER_PARAMS_INTERNAL_GROUP_VIEWS_H_
#define CKPT_TRAINER_PARAMS_INTERNAL_GROUP_VIEWS_H_

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "trainer/params/param_store.h"

namespace ckpt::trainer {

// The part `range` of an array that holds the range `held` of its group.
inline Tensor PartOf(const Tensor& array, const FlatRange& held, const FlatRange& range) {
  return array.Rows(range.begin - held.begin, range.elems);
}

// A parameter as a view of an array that holds its group's flat elements.
inline Tensor ParamView(const Tensor& flat, const FlatLayout& layout, std::size_t index,
                        const ParamSpec& spec) {
  Tensor view = flat.Rows(layout.offsets[index], layout.num_elems[index]);
  view.ndim = static_cast<int>(spec.shape.size());
  std::ranges::copy(spec.shape, view.dims.begin());
  return view;
}

template <typename Predicate, typename Use>
void ParamStore::ForEachInSlot(int unit, const Buffer& memory, DType dtype, Predicate lies_there,
                               const Use& use) {
  std::uint64_t offset_bytes = 0;
  for (const std::size_t g : Groups(unit)) {
    const GroupPlan& group = plan_.groups[g];
    if (!lies_there(group)) continue;
    use(g, Tensor(memory.data() + offset_bytes, dtype, {group.layout.total_elems}));
    offset_bytes += SlotBytes(group, dtype);
  }
}

template <typename Use>
void ParamStore::ForEachParam(const GroupPlan& group, const Tensor& flat, const Use& use) const {
  for (std::size_t i = 0; i < group.params.size(); ++i) {
    use(group.params[i], ParamView(flat, group.layout, i, Spec(group, i)));
  }
}

}  // namespace ckpt::trainer

#endif  // CKPT_TRAINER_PARAMS_INTERNAL_GROUP_VIEWS_H_
