// torch's DTensor and ShardedTensor in a pickle: the part of a tensor that one rank has, and how
// the ranks share it.
#ifndef CKPT_FORMATS_TORCH_SAVE_INTERNAL_DISTRIBUTED_TENSOR_H_
#define CKPT_FORMATS_TORCH_SAVE_INTERNAL_DISTRIBUTED_TENSOR_H_

#include <cstdint>
#include <optional>
#include <vector>

#include "core/base/result.h"
#include "formats/pickle/graph.h"

namespace ckpt::torch_save {

struct DistributedTensor {
  pickle::NodeId local = pickle::kNoNode;  // the rank's own tensor
  pickle::NodeId spec = pickle::kNoNode;   // mesh and placements
  pickle::NodeId size = pickle::kNoNode;   // of the whole tensor
  // Every element is in `local`, as it is: the rank was alone, or each rank had all of it.
  bool is_whole = false;
};

// What `_rebuild_from_type_v2(_rebuild_wrapper_subclass, DTensor, (…), state)` describes, or a
// parameter of one; nothing of another node.
[[nodiscard]] std::optional<DistributedTensor> DistributedTensorOf(const pickle::Graph& graph,
                                                                   pickle::NodeId node);

// Which part the rank has. Both by dim of the mesh.
struct RankPlacement {
  std::vector<std::optional<std::int64_t>> cut_dims;  // the tensor's dim; nothing: all have it all
  std::vector<std::int64_t> coordinate;               // of the rank
};

// Errors: kUnsupported (a placement that is neither Shard nor Replicate), kBadItem (no mesh or no
// placements, or they do not match; the rank is not in the mesh).
Result<RankPlacement> ReadPlacement(const pickle::Graph& graph, const DistributedTensor& tensor);

// What FSDP1 makes of a tensor if it has no device mesh.
struct ShardedTensor {
  struct Shard {
    pickle::NodeId local = pickle::kNoNode;    // a tensor of the rank
    pickle::NodeId offsets = pickle::kNoNode;  // of it in the whole tensor
  };
  pickle::NodeId size = pickle::kNoNode;  // of the whole tensor
  std::vector<Shard> shards = {};         // those of the rank; none, if there are more ranks
};

// As DistributedTensorOf, of the class ShardedTensor. Errors: kBadItem (not the state that the
// class stores).
Result<std::optional<ShardedTensor>> ShardedTensorOf(const pickle::Graph& graph,
                                                     pickle::NodeId node);

}  // namespace ckpt::torch_save

#endif  // CKPT_FORMATS_TORCH_SAVE_INTERNAL_DISTRIBUTED_TENSOR_H_
