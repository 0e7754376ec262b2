// What the ranks' optimizers keep, under the names of the model's parameters.
#ifndef CKPT_FORMATS_VERL_INTERNAL_OPTIMIZER_H_
#define CKPT_FORMATS_VERL_INTERNAL_OPTIMIZER_H_

#include <map>
#include <string>
#include <vector>

#include "core/base/result.h"
#include "formats/torch_save/rank_set.h"

namespace ckpt::verl {

struct Parameter {
  std::string name;
  Dims shape;
};

// The parameters of the model as an optimizer numbers them: in the order of the state dict, each
// once, under the first of its names. `set` has the model's files. Where ranks share tensors,
// those that each rank has whole are buffers of modules, and none of them. Errors: those of
// RankParts.
Result<std::vector<Parameter>> ListParameters(const torch_save::RankSet& set);

struct NamedOptimizer {
  // Named as torch.distributed.checkpoint.state_dict names them in a state dict "optim".
  std::vector<torch_save::RankTensor> tensors;  // of the files of `set`
  // The settings, and the names of the parameters.
  std::map<std::string, torch_save::MakeObject> groups;
};

// `set` has the optimizer's files of all ranks: torch's state_dict, which numbers the parameters.
//
// Errors: those of CollectParts; kUnsupported (nothing says which parameter has which number: no
// groups or several, more or fewer parameters than the model; or FSDP1's flat parameters),
// kBadMetadata.
Result<NamedOptimizer> NameOptimizer(const torch_save::RankSet& set,
                                     const std::vector<Parameter>& parameters);

}  // namespace ckpt::verl

#endif  // CKPT_FORMATS_VERL_INTERNAL_OPTIMIZER_H_
