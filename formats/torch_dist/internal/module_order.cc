#include "formats/torch_dist/internal/module_order.h"

#include <algorithm>
#include <string>

namespace ckpt::torch_dist {
namespace {

// The parts of a GPTModel.
enum Section : std::int64_t { kEmbedding, kLayers, kFinalNorm, kFurtherLayers, kHead };

constexpr std::string_view kLayersPrefix = "decoder.layers.";
// Layers that predict further tokens, and the layer inside each.
constexpr std::string_view kFurtherPrefix = "mtp.layers.";
constexpr std::string_view kInnerLayer = "transformer_layer.";
// The first parameters of the experts' projections.
constexpr std::string_view kExperts1 = "mlp.experts.experts.linear_fc1.weight";
constexpr std::string_view kExperts2 = "mlp.experts.experts.linear_fc2.weight";

// Outside layers.
struct Outer {
  std::string_view name;
  Section section;
};
constexpr std::array kOuter = {Outer{"embedding.word_embeddings.weight", kEmbedding},
                               Outer{"embedding.position_embeddings.weight", kEmbedding},
                               Outer{"decoder.final_layernorm.weight", kFinalNorm},
                               Outer{"decoder.final_layernorm.bias", kFinalNorm},
                               Outer{"output_layer.weight", kHead},
                               Outer{"output_layer.bias", kHead}};

// Of a TransformerLayer, with the attention's norm as a module of its own. Attention.__init__ makes
// the output's projection before its subclasses make theirs.
constexpr std::array<std::string_view, 43> kNormsApart = {
    "input_layernorm.weight",
    "input_layernorm.bias",
    "self_attention.linear_qkv.layer_norm_weight",
    "self_attention.linear_qkv.layer_norm_bias",
    "self_attention.core_attention.softmax_offset",
    "self_attention.linear_proj.weight",
    "self_attention.linear_proj.bias",
    "self_attention.linear_proj.post_layernorm.weight",
    "self_attention.linear_q_proj.weight",
    "self_attention.linear_q_down_proj.weight",
    "self_attention.linear_q_up_proj.weight",
    "self_attention.linear_kv_down_proj.weight",
    "self_attention.linear_kv_up_proj.weight",
    "self_attention.linear_qkv.weight",
    "self_attention.linear_qkv.bias",
    "self_attention.linear_q_up_proj.layer_norm_weight",
    "self_attention.q_layernorm.weight",
    "self_attention.q_layernorm.bias",
    "self_attention.k_layernorm.weight",
    "self_attention.k_layernorm.bias",
    "self_attention.linear_kv_up_proj.layer_norm_weight",
    "self_attention.kv_layernorm.weight",
    "pre_mlp_layernorm.weight",
    "pre_mlp_layernorm.bias",
    "mlp.linear_fc1.layer_norm_weight",
    "mlp.linear_fc1.layer_norm_bias",
    "mlp.linear_fc1.weight",
    "mlp.linear_fc1.bias",
    "mlp.linear_fc2.weight",
    "mlp.linear_fc2.bias",
    "mlp.linear_fc2.post_layernorm.weight",
    "mlp.router.weight",
    "mlp.router.bias",
    "mlp.experts.experts.linear_fc1.weight",
    "mlp.experts.experts.linear_fc1.bias",
    "mlp.experts.experts.linear_fc2.weight",
    "mlp.experts.experts.linear_fc2.bias",
    "mlp.shared_experts.gate_weight",  // of the module itself, so before those of its parts
    "mlp.shared_experts.gate_bias",
    "mlp.shared_experts.linear_fc1.weight",
    "mlp.shared_experts.linear_fc1.bias",
    "mlp.shared_experts.linear_fc2.weight",
    "mlp.shared_experts.linear_fc2.bias"};

// Of a layer that predicts a further token: before and behind all of the layer inside.
struct AroundLayer {
  std::string_view name;
  std::int64_t rank;
};
constexpr std::array kAroundLayer = {
    AroundLayer{"enorm.weight", -10},
    AroundLayer{"enorm.bias", -9},
    AroundLayer{"hnorm.weight", -8},
    AroundLayer{"hnorm.bias", -7},
    AroundLayer{"eh_proj.weight", -6},
    AroundLayer{"final_layernorm.weight", 4 * kNormsApart.size()},
    AroundLayer{"final_layernorm.bias", 4 * kNormsApart.size() + 1}};

// What comes before a projection that has the norm before it: a norm in it is registered first.
constexpr std::string_view kNormIn = ".layer_norm_";

// Rows of the table, and between the row of a projection and the one before it the norm in it.
std::optional<std::int64_t> RankInLayer(std::string_view leaf, const ModuleForm& form) {
  const auto row_of = [](std::string_view name) -> std::optional<std::int64_t> {
    const auto* const found = std::ranges::find(kNormsApart, name);
    if (found == kNormsApart.end()) return std::nullopt;
    return 4 * (found - kNormsApart.begin());
  };
  const std::size_t norm = leaf.find(kNormIn);
  if (norm == std::string_view::npos || !form.norm_in_projection) return row_of(leaf);
  if (!row_of(leaf)) return std::nullopt;
  const std::optional<std::int64_t> projection =
      row_of(std::string(leaf.substr(0, norm)) + ".weight");
  const bool is_bias = leaf.ends_with("bias");
  return projection ? std::optional(*projection - (is_bias ? 1 : 2)) : std::nullopt;
}

}  // namespace

std::optional<ModulePlace> PlaceOf(std::string_view name, std::int64_t layer, std::int64_t expert,
                                   const ModuleForm& form) {
  if (const auto* const outer = std::ranges::find(kOuter, name, &Outer::name);
      outer != kOuter.end()) {
    return ModulePlace{outer->section, 0, outer - kOuter.begin(), 0, 0};
  }
  Section section = kLayers;
  std::string_view leaf = name;
  if (name.starts_with(kLayersPrefix)) {
    leaf.remove_prefix(kLayersPrefix.size());
  } else if (name.starts_with(kFurtherPrefix)) {
    section = kFurtherLayers;
    leaf.remove_prefix(kFurtherPrefix.size());
    const auto* const around = std::ranges::find(kAroundLayer, leaf, &AroundLayer::name);
    if (around != kAroundLayer.end()) return ModulePlace{section, layer, around->rank, 0, 0};
    if (!leaf.starts_with(kInnerLayer)) return std::nullopt;
    leaf.remove_prefix(kInnerLayer.size());
  } else {
    return std::nullopt;
  }
  const std::optional<std::int64_t> rank = RankInLayer(leaf, form);
  if (!rank) return std::nullopt;
  const std::string_view module = leaf.substr(0, leaf.rfind('.') + 1);
  const bool is_fc1 = kExperts1.starts_with(module);
  if (!is_fc1 && !kExperts2.starts_with(module)) return ModulePlace{section, layer, *rank, 0, 0};
  // All experts stand where the first parameter of theirs does.
  const std::int64_t experts = *RankInLayer(kExperts1, form);
  if (form.experts_one_by_one) return ModulePlace{section, layer, experts, expert, *rank};
  // A grouped projection has each expert's bias behind its weight.
  const std::int64_t projection = *RankInLayer(is_fc1 ? kExperts1 : kExperts2, form);
  return ModulePlace{section, layer, experts, projection,
                     2 * expert + (leaf.ends_with("bias") ? 1 : 0)};
}

ModulePlace PlaceOfHead() { return {kHead, 0, 0, 0, 0}; }

}  // namespace ckpt::torch_dist
