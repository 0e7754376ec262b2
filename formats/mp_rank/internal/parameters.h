// Which tensors of a rank's model its optimizers update, in the order in which they number them.
#ifndef CKPT_FORMATS_MP_RANK_INTERNAL_PARAMETERS_H_
#define CKPT_FORMATS_MP_RANK_INTERNAL_PARAMETERS_H_

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "formats/mp_rank/internal/arguments.h"
#include "formats/torch_save/torch_save_source.h"

namespace ckpt::mp_rank {

// A parameter of one rank's model.
struct Parameter {
  std::size_t position = 0;  // among the rank's parts
  std::string key;           // in the rank's file
  torch_save::RebuiltTensor weight;
  std::int64_t part = 0;      // of the model, in a stage of an interleaved pipeline
  bool is_expert = false;     // it has the optimizer of experts, which is another one
  bool decays = true;         // Megatron lets no vector and no bias decay
  bool has_own_rate = false;  // it is the embedding or the head, and the run has `decoupled_lr`
  bool is_shared = false;  // an embedding that another stage has, too: it has a bucket of its own
};

// What an optimizer keeps for a parameter.
struct ParameterState {
  std::size_t parameter = 0;        // its position in the list
  std::string field;                // "param" (its exact value), "exp_avg", …
  torch_save::RebuiltTensor local;  // as the parameter is shaped
};
inline constexpr std::string_view kExactValue = "param";

// `parts`: the model's tensors in the order of the state dict, which is that of the module's
// parameters; `stage` is the rank's. Buffers of modules are left out.
[[nodiscard]] std::vector<Parameter> ListParameters(std::span<const torch_save::RankPart> parts,
                                                    const Arguments& arguments, std::int64_t stage);

// Whether experts have an optimizer of their own, beside that of all other parameters.
[[nodiscard]] bool HasExpertOptimizer(const Arguments& arguments);

}  // namespace ckpt::mp_rank

#endif  // CKPT_FORMATS_MP_RANK_INTERNAL_PARAMETERS_H_
