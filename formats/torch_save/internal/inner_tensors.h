// Tensors wherever they are in a pickled object: also in attributes of objects and arguments of
// calls, where no state dict leads.
#ifndef CKPT_FORMATS_TORCH_SAVE_INTERNAL_INNER_TENSORS_H_
#define CKPT_FORMATS_TORCH_SAVE_INTERNAL_INNER_TENSORS_H_

#include <string>
#include <vector>

#include "core/base/result.h"
#include "formats/pickle/graph.h"
#include "formats/torch_save/internal/entry_walk.h"

namespace ckpt::torch_save {

struct InnerTensor {
  pickle::NodeId node =
      pickle::kNoNode;  // a dense tensor, or a storage that is referred to as such
  // The outermost object on the way that is neither a mapping, a list nor a module, or that is one
  // entry; the storage itself included; kNoNode if there is none.
  pickle::NodeId holder = pickle::kNoNode;
  std::string holder_key = {};  // its path from the root, as FindEntries names paths
  std::string path = {};        // from the holder, or else from the root
  bool of_mesh = false;         // only says how the ranks of a DTensor are arranged
};

// Those below `root`, each node once, in order of a depth-first walk.
//
// Errors: kResource (their paths are longer than any checkpoint's).
Result<std::vector<InnerTensor>> FindInnerTensors(const pickle::Graph& graph, pickle::NodeId root,
                                                  const WholeNodes& whole = {});

}  // namespace ckpt::torch_save

#endif  // CKPT_FORMATS_TORCH_SAVE_INTERNAL_INNER_TENSORS_H_
