// What the ranks' files have of each tensor, and where in it that lies.
#ifndef CKPT_FORMATS_VERL_INTERNAL_RANK_TENSORS_H_
#define CKPT_FORMATS_VERL_INTERNAL_RANK_TENSORS_H_

#include <cstddef>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "core/base/result.h"
#include "formats/torch_save/rank_set.h"
#include "formats/torch_save/torch_save_source.h"

namespace ckpt::verl {

// A rank's part of a tensor; `rank` is also its file's number.
struct OfRank {
  std::size_t rank = 0;
  torch_save::RankPart part;
};
// Of one tensor, from all ranks, by rank.
using Parts = std::vector<OfRank>;

// Those whose keys begin with `prefix`, by the tensor's key. Errors: those of RankParts, of all
// files at once.
Result<std::map<std::string, Parts>> CollectParts(const torch_save::RankSet& set,
                                                  std::string_view prefix = {});

// The tensor that the parts make. `names`: the ranks' files. What is wrong with it is its problem:
// kMissing, kBadMetadata (also for a key that a file has twice), kShapeMismatch.
torch_save::RankTensor Assemble(const std::string& key, const Parts& parts,
                                const std::vector<std::string>& names);

}  // namespace ckpt::verl

#endif  // CKPT_FORMATS_VERL_INTERNAL_RANK_TENSORS_H_
