// Which parameters weight decay applies to, as Megatron divides them.
#ifndef CKPT_CORE_TRAINING_WEIGHT_DECAY_H_
#define CKPT_CORE_TRAINING_WEIGHT_DECAY_H_

#include <cstddef>
#include <string_view>

namespace ckpt {

// Whether Megatron's `apply_wd_to_qk_layernorm` is about a parameter of this name.
[[nodiscard]] bool IsQueryKeyNorm(std::string_view name);

// Matrices decay, biases and all other vectors do not; norms of queries and keys do if
// `with_query_key_norms`. `name`: live, or the same with a module before it.
[[nodiscard]] bool Decays(std::string_view name, std::size_t num_dims, bool with_query_key_norms);

}  // namespace ckpt

#endif  // CKPT_CORE_TRAINING_WEIGHT_DECAY_H_
