#include "trainer/checkpoint/model_facts.h"

#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>

#include "converters/families/family_registry.h"

namespace ckpt::trainer {
namespace {

using layout::Configuration;
using layout::Value;

Configuration OfAttention(const ModelConfig& model) {
  return {{"num_attention_heads", model.num_attention_heads},
          {"num_key_value_heads", model.num_query_groups},
          {"head_dim", model.kv_channels},
          {"attention_bias", model.qkv_bias},
          {"use_qk_norm", model.qk_layernorm && !model.qk_layernorm_over_heads},
          {"use_wide_qk_norm", model.qk_layernorm && model.qk_layernorm_over_heads}};
}

Configuration OfLatentAttention(const ModelConfig& model, const MlaConfig& mla) {
  return {{"num_attention_heads", model.num_attention_heads},
          {"q_lora_rank", mla.q_lora_rank > 0 ? Value(mla.q_lora_rank) : Value()},
          {"kv_lora_rank", mla.kv_lora_rank},
          {"qk_nope_head_dim", mla.qk_head_dim},
          {"qk_rope_head_dim", mla.qk_pos_emb_head_dim},
          {"v_head_dim", mla.v_head_dim},
          {"latent_bias", mla.down_bias},
          {"use_qk_norm", false}};
}

Configuration OfExperts(const ModelConfig& model) {
  if (!model.moe) return {{"num_experts", 0}};
  const MoeConfig& moe = *model.moe;
  Value::List dense_layers;
  for (std::size_t layer = 0; layer < model.is_moe_layer.size(); ++layer) {
    if (!model.is_moe_layer[layer]) dense_layers.emplace_back(static_cast<std::int64_t>(layer));
  }
  return {{"num_experts", moe.num_experts},
          {"moe_intermediate_size", moe.ffn_hidden_size},
          {"mlp_only_layers", std::move(dense_layers)},
          {"shared_expert_intermediate_size", moe.shared_expert_ffn_hidden_size},
          {"use_shared_gate", moe.shared_expert_gate},
          {"router_expert_bias", moe.expert_bias}};
}

}  // namespace

Configuration ModelFacts(const ModelConfig& model) {
  Configuration facts = {
      {"model_type", std::string(kModelTypeOfRuns)},
      {"of_megatron", true},
      {"num_hidden_layers", model.num_layers},
      {"hidden_size", model.hidden_size},
      {"intermediate_size", model.ffn_hidden_size},
      {"vocab_size", model.padded_vocab_size},
      {"padded_vocab_size", model.padded_vocab_size},
      {"tie_word_embeddings", model.tied_embeddings},
      {"gated_linear_unit", model.activation == Activation::kSwiGlu},
      {"attention_output_bias", model.attention_output_bias},
      {"mlp_bias", model.mlp_bias},
      {"use_post_norms", model.post_layernorm},
      {"norm_bias", model.normalization == Normalization::kLayerNorm},
      {"learned_positions", model.learned_positions > 0},
      {"max_position_embeddings", model.learned_positions},
  };
  facts.merge(model.mla ? OfLatentAttention(model, *model.mla) : OfAttention(model));
  facts.merge(OfExperts(model));
  return facts;
}

}  // namespace ckpt::trainer
