// How many ranks of each kind a run has.
#ifndef CKPT_FORMATS_TORCH_DIST_INTERNAL_RUN_RANKS_H_
#define CKPT_FORMATS_TORCH_DIST_INTERNAL_RUN_RANKS_H_

#include <cstdint>
#include <optional>
#include <string_view>

#include "core/layout/value.h"

namespace ckpt::torch_dist {

// All numbers are positive.
struct RunRanks {
  bool are_named = false;  // the arguments say how many tensor ranks there are
  std::int64_t tensor = 1;
  std::int64_t pipeline = 1;
  std::int64_t expert = 1;
  std::int64_t expert_tensor = 1;
  // Those among which a parameter's optimizer is divided: of experts, and of all others.
  std::int64_t data = 1;
  std::int64_t expert_data = 1;
  // Rows of a fc1 are those of a gate and of up, and ranks divide both.
  bool is_gated = false;
  // All experts of a layer that a rank has are one parameter, or may be: Megatron-Core of some
  // versions has such a class for these arguments, and later ones another. Nothing: it is not said.
  std::optional<bool> joins_experts = {};

  // As the run's arguments say; one, where they do not.
  static RunRanks Of(const layout::Configuration& args);

  // How many divide a weight, by its key.
  [[nodiscard]] std::int64_t TensorRanks(std::string_view key) const;
};

}  // namespace ckpt::torch_dist

#endif  // CKPT_FORMATS_TORCH_DIST_INTERNAL_RUN_RANKS_H_
