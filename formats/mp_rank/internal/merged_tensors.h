// Makes tensors of the model of the parts that its ranks have.
#ifndef CKPT_FORMATS_MP_RANK_INTERNAL_MERGED_TENSORS_H_
#define CKPT_FORMATS_MP_RANK_INTERNAL_MERGED_TENSORS_H_

#include <cstddef>
#include <map>
#include <string>
#include <vector>

#include "core/base/status.h"
#include "formats/mp_rank/internal/arguments.h"
#include "formats/mp_rank/internal/rank_directories.h"
#include "formats/torch_save/rank_set.h"

namespace ckpt::mp_rank {

// A rank's part of a tensor.
struct OfRank {
  std::size_t file = 0;  // its number in the set
  Coordinate at;
  torch_save::RebuiltTensor local;
  Status problem = {};  // not OK: why the part cannot be read
};
// Of all ranks, by the tensor's name in the model.
using Parts = std::map<std::string, std::vector<OfRank>>;

// Adds what a rank has under this name: a part of a tensor, or of one for each of its experts.
void AddPart(const std::string& name, OfRank part, const Arguments& arguments, Parts& tensors);

// Adds the tensors that the parts make; `prefix` stands before their names. What is wrong with one
// is its problem: kUnsupported (how ranks divide it is not known), kMissing (a tensor rank of a
// stage lacks it), kShapeMismatch (parts that do not fit each other), those of SplitExperts.
void AddTensors(const std::string& prefix, const Parts& tensors, const Arguments& arguments,
                torch_save::RankSet& set);

}  // namespace ckpt::mp_rank

#endif  // CKPT_FORMATS_MP_RANK_INTERNAL_MERGED_TENSORS_H_
