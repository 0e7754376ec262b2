// The order in which Megatron's GPT model registers its parameters, in which buffers have them.
#ifndef CKPT_FORMATS_TORCH_DIST_INTERNAL_MODULE_ORDER_H_
#define CKPT_FORMATS_TORCH_DIST_INTERNAL_MODULE_ORDER_H_

#include <array>
#include <cstdint>
#include <optional>
#include <string_view>

namespace ckpt::torch_dist {

// What keys do not say of the modules that had them.
struct ModuleForm {
  // The norm before the queries, keys and values is a part of their projection, as in Transformer
  // Engine. Otherwise it is a module of its own, before the attention.
  bool norm_in_projection = false;
  // Each expert is a module with both its projections. Otherwise all experts' fc1 come before all
  // experts' fc2.
  bool experts_one_by_one = false;
};

// Compares as the parameters are registered.
using ModulePlace = std::array<std::int64_t, 5>;

// `name`: the weight's, without a layer's number ("decoder.layers.mlp.linear_fc1.weight"). `layer`
// and `expert` are numbers in the model, 0 where there is none. Nothing: the order of such a
// parameter is not known.
[[nodiscard]] std::optional<ModulePlace> PlaceOf(std::string_view name, std::int64_t layer,
                                                 std::int64_t expert, const ModuleForm& form);

// Where the last stage has its own copy of a tied embedding.
[[nodiscard]] ModulePlace PlaceOfHead();

}  // namespace ckpt::torch_dist

#endif  // CKPT_FORMATS_TORCH_DIST_INTERNAL_MODULE_ORDER_H_
