// Which parameters weight decay applies to, as Megatron divides them.
#ifndef CKPT_CORE_TRAINING_WEIGHT_DECAY_H_
#define CKPT_CORE_TRAINING_WEIGHT_DECAY_H_

#include <cstddef>
#include <functional>
#include <string_view>

#include "core/layout/value.h"

namespace ckpt {

// Whether Megatron's `apply_wd_to_qk_layernorm` is about a parameter of this name.
[[nodiscard]] bool IsQueryKeyNorm(std::string_view name);

// Whether the arguments of a run ask for it: by that flag, or by the word that stood for it in
// earlier versions. `find` has null for an argument that is absent.
[[nodiscard]] bool DecaysQueryKeyNorms(
    const std::function<const layout::Value*(std::string_view name)>& find);

// Matrices decay, biases and all other vectors do not; norms of queries and keys do if
// `with_query_key_norms`. `name`: live, or the same with a module before it.
[[nodiscard]] bool Decays(std::string_view name, std::size_t num_dims, bool with_query_key_norms);

}  // namespace ckpt

#endif  // CKPT_CORE_TRAINING_WEIGHT_DECAY_H_
