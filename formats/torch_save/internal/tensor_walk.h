// Finds the tensors of a pickled object and names each by its path.
#ifndef CKPT_FORMATS_TORCH_SAVE_INTERNAL_TENSOR_WALK_H_
#define CKPT_FORMATS_TORCH_SAVE_INTERNAL_TENSOR_WALK_H_

#include <string>
#include <vector>

#include "core/base/result.h"
#include "formats/pickle/graph.h"
#include "formats/torch_save/tensor_rebuild.h"

namespace ckpt::torch_save {

struct NamedNode {
  std::string key;  // empty: the root itself
  pickle::NodeId node = pickle::kNoNode;
  TensorForm form = TensorForm::kNone;  // kNone: a call that no honest checkpoint asks for
};

// Walks mappings (keys by Python's str), lists and tuples (positions) below `root`, and a pickled
// nn.Module as its state_dict() does: parameters, persistent buffers, submodules. Path elements are
// joined with '.'. Where two paths are the same text then (`{"a.b": …}` beside `{"a": {"b": …}}`, a
// key 1 beside "1"), both are written as Python would subscript them: `['a.b']`, `['a']['b']`. In
// order of the walk; the same tensor under two paths is named twice; a container that contains
// itself is not entered again. Calls that pickle::IsHarmlessCall does not know are named too.
//
// Errors: kResource (more names, or more ways to them, than a checkpoint can have: shared
// containers that multiply), kBadMetadata (a dict with the same key twice).
Result<std::vector<NamedNode>> FindTensors(const pickle::Graph& graph, pickle::NodeId root);

}  // namespace ckpt::torch_save

#endif  // CKPT_FORMATS_TORCH_SAVE_INTERNAL_TENSOR_WALK_H_
