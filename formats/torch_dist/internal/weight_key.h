// What a weight's key says of its shape.
#ifndef CKPT_FORMATS_TORCH_DIST_INTERNAL_WEIGHT_KEY_H_
#define CKPT_FORMATS_TORCH_DIST_INTERNAL_WEIGHT_KEY_H_

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace ckpt::torch_dist {

// Which leading dims of a weight count layers, and a layer's experts. A number in the key stands
// for one of them, which then has no dim.
struct KeyForm {
  std::string name;                   // the key without the layer's number
  std::optional<std::int64_t> layer;  // that number
  bool stacks_layers = false;
  bool stacks_experts = false;

  [[nodiscard]] std::size_t leading_dims() const {
    return static_cast<std::size_t>(stacks_layers) + static_cast<std::size_t>(stacks_experts);
  }
};

// The key may be that of an optimizer's state of the weight.
[[nodiscard]] KeyForm FormOfKey(std::string_view key);

// Whether it is a fc1, whose rows are those of a gate and then of up if the model is gated.
[[nodiscard]] bool MayBeGated(std::string_view key);

// Whether it projects to the latents of queries, or of keys and values, in latent attention. The
// key does not say how tensor ranks divide it: by rows in local layers, and with Transformer Engine
// each has all of it (from Megatron-Core 0.12 on, so in every version that has dp_reshardable).
[[nodiscard]] bool IsLatentProjection(std::string_view key);

// Whether experts have it, which are routed to.
[[nodiscard]] bool IsOfExperts(std::string_view key);

}  // namespace ckpt::torch_dist

#endif  // CKPT_FORMATS_TORCH_DIST_INTERNAL_WEIGHT_KEY_H_
