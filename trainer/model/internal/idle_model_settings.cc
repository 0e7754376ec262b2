#include "trainer/model/internal/idle_model_settings.h"

namespace ckpt::trainer {
namespace {

void RefuseIdleAttention(SettingsReader& settings, const ModelConfig& config) {
  settings.RefuseIdle(!config.mla, "without multi_latent_attention",
                      {"q_lora_rank", "kv_lora_rank", "qk_head_dim", "qk_pos_emb_head_dim",
                       "v_head_dim", "latent_norm_epsilon"});
  settings.RefuseIdle(config.mla.has_value(), "with multi_latent_attention",
                      {"qk_layernorm_over_heads"});
  settings.RefuseIdle(!config.qk_layernorm, "without qk_layernorm", {"qk_layernorm_over_heads"});
  settings.RefuseIdle(!settings.Has("window_size"), "without window_size",
                      {"window_attn_skip_freq"});
}

void RefuseIdlePositions(SettingsReader& settings, const ModelConfig& config) {
  const RopeConfig& rope = config.rope;
  if (config.learned_positions > 0) {
    settings.RefuseIdle(
        true, "with position_embedding_type=learned_absolute",
        {"rotary_base", "rotary_percent", "rotary_interleaved", "rope_scaling_type",
         "rotary_scaling_factor", "original_max_position_embeddings", "low_freq_factor",
         "high_freq_factor", "beta_fast", "beta_slow", "yarn_correction_range_round_to_int",
         "mscale", "mscale_all_dim", "rope_attention_factor"});
    return;
  }
  const bool is_scaled = rope.scaling != RopeScaling::kNone;
  const bool is_yarn = rope.scaling == RopeScaling::kYarn;
  const bool is_llama3 = rope.scaling == RopeScaling::kLlama3;
  settings.RefuseIdle(!is_scaled, "without rope_scaling_type", {"rotary_scaling_factor"});
  settings.RefuseIdle(!is_yarn && !is_llama3, "without rope_scaling_type llama3 or yarn",
                      {"original_max_position_embeddings"});
  settings.RefuseIdle(!is_llama3, "without rope_scaling_type=llama3",
                      {"low_freq_factor", "high_freq_factor"});
  settings.RefuseIdle(!is_yarn, "without rope_scaling_type=yarn",
                      {"beta_fast", "beta_slow", "yarn_correction_range_round_to_int", "mscale",
                       "rope_attention_factor"});
  const bool sharpens = config.mla && is_scaled;
  settings.RefuseIdle(!is_yarn && !sharpens, "without rope_scaling_type=yarn", {"mscale_all_dim"});
  if (!is_yarn) return;
  const bool is_given = settings.Has("rope_attention_factor");
  settings.RefuseIdle(is_given, "together with rope_attention_factor", {"mscale"});
  settings.RefuseIdle(!is_given && !settings.Has("mscale_all_dim"), "without mscale_all_dim",
                      {"mscale"});
  settings.RefuseIdle(!sharpens && is_given, "together with rope_attention_factor",
                      {"mscale_all_dim"});
  settings.RefuseIdle(!sharpens && !is_given && !settings.Has("mscale"), "without mscale",
                      {"mscale_all_dim"});
}

void RefuseIdleRouter(SettingsReader& settings, const MoeConfig& moe) {
  settings.RefuseIdle(moe.router.score == ScoreFunction::kSigmoid,
                      "with moe_router_score_function=sigmoid", {"moe_router_pre_softmax"});
  settings.RefuseIdle(moe.router.score == ScoreFunction::kSoftmaxTopK,
                      "without moe_router_pre_softmax", {"moe_router_normalize_topk"});
  settings.RefuseIdle(moe.router.num_groups == 1, "without moe_router_num_groups",
                      {"moe_router_group_score"});
  settings.RefuseIdle(!moe.expert_bias, "without moe_router_enable_expert_bias",
                      {"moe_router_bias_update_rate"});
  settings.RefuseIdle(moe.aux.kind == AuxLoss::kNone, "without moe_router_load_balancing_type",
                      {"moe_aux_loss_coeff"});
  settings.RefuseIdle(moe.aux.coefficient == 0, "without moe_aux_loss_coeff",
                      {"moe_router_load_balancing_type"});
  settings.RefuseIdle(!moe.capacity_factor, "without moe_expert_capacity_factor",
                      {"moe_token_drop_policy"});
  settings.RefuseIdle(moe.shared_expert_ffn_hidden_size == 0,
                      "without moe_shared_expert_intermediate_size", {"moe_shared_expert_gate"});
}

}  // namespace

void RefuseIdleModelSettings(SettingsReader& settings, const ModelConfig& config) {
  // With an invalid setting, `config` holds a default in its place, which cannot show what else has
  // no effect.
  if (!settings.ok()) return;
  RefuseIdleAttention(settings, config);
  RefuseIdlePositions(settings, config);
  if (config.moe) {
    RefuseIdleRouter(settings, *config.moe);
    return;
  }
  settings.RefuseIdle(true, "without num_experts",
                      {"moe_layer_freq",
                       "moe_ffn_hidden_size",
                       "moe_shared_expert_intermediate_size",
                       "moe_shared_expert_gate",
                       "moe_router_topk",
                       "moe_router_score_function",
                       "moe_router_pre_softmax",
                       "moe_router_normalize_topk",
                       "moe_router_topk_scaling_factor",
                       "moe_router_num_groups",
                       "moe_router_group_topk",
                       "moe_router_group_score",
                       "moe_router_enable_expert_bias",
                       "moe_router_bias_update_rate",
                       "moe_router_load_balancing_type",
                       "moe_aux_loss_coeff",
                       "moe_z_loss_coeff",
                       "moe_expert_capacity_factor",
                       "moe_token_drop_policy",
                       "moe_pad_expert_input_to_capacity"});
}

}  // namespace ckpt::trainer
