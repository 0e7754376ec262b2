// The attributes of an object, in the state that pickle stores of it.
#ifndef CKPT_FORMATS_TORCH_SAVE_INTERNAL_OBJECT_ATTRIBUTES_H_
#define CKPT_FORMATS_TORCH_SAVE_INTERNAL_OBJECT_ATTRIBUTES_H_

#include <array>
#include <string_view>

#include "formats/pickle/graph.h"

namespace ckpt::torch_save {

struct ObjectAttributes {
  // Dicts by name; the second one is for slots. kNoNode: there is none.
  std::array<pickle::NodeId, 2> dicts = {pickle::kNoNode, pickle::kNoNode};
  bool is_all = true;  // else the state holds something else, too

  // An attribute's value; kNoNode if there is none.
  [[nodiscard]] pickle::NodeId Find(const pickle::Graph& graph, std::string_view name) const;
};

// Of a state that is None, a dict, or a tuple of two of these. A dict of more attributes than any
// tensor has counts as something else: objects may share it, and each would be searched.
[[nodiscard]] ObjectAttributes AttributesIn(const pickle::Graph& graph, pickle::NodeId state);

}  // namespace ckpt::torch_save

#endif  // CKPT_FORMATS_TORCH_SAVE_INTERNAL_OBJECT_ATTRIBUTES_H_
